# SPDX-License-Identifier: GPL-2.0
# The front door. Kbuild reads Kbuild, not this file. Behind "make module" is tools/module/build;
# behind everything else is tools/bootstrap, which needs root, and the lab (tools/lab), which it builds.

VERBS := demo test sim kunit bench report deb kernel shell lint mutants fuzz configs clean overlay help

.DEFAULT_GOAL := help
.PHONY: $(VERBS) module

# make module KDIR=dir RELEASE=release SOURCE=path CACHE=dir OUTPUT=dir
# From the command line only: such names may mean something else in the environment.
option = $(if $(filter command,$(origin $(2))),--$(1) '$($(2))')

module:
	@exec tools/module/build $(call option,kdir,KDIR) $(call option,release,RELEASE) \
		$(call option,source,SOURCE) $(call option,cache,CACHE) $(call option,output,OUTPUT)

# make test T=name LANE=uml KERNEL=debug ROUNDS=n; make overlay KDIR=dir; make mutants SHARD=0/14;
# make fuzz FOR=10m INPUT=file; make sim SEEDS=0..100
export LAB_ARG_FILTER := $(T)
export LAB_ARG_LANE := $(LANE)
export LAB_ARG_KERNEL := $(KERNEL)
export LAB_ARG_ROUNDS := $(ROUNDS)
export LAB_ARG_HOLLOW := $(HOLLOW)
export LAB_ARG_FRESH := $(FRESH)
export LAB_ARG_KDIR := $(KDIR)
export LAB_ARG_SHARD := $(SHARD)
export LAB_ARG_FOR := $(FOR)
export LAB_ARG_INPUT := $(INPUT)
export LAB_ARG_PAIRS := $(PAIRS)
export LAB_ARG_SELF := $(SELF)
export LAB_ARG_PAGE := $(PAGE)
export LAB_ARG_SEEDS := $(SEEDS)
export LAB_ARG_SEED := $(SEED)
export LAB_ARG_MUTANT := $(MUTANT)
export LAB_ARG_COVER := $(COVER)

$(VERBS):
	@exec tools/bootstrap $@
