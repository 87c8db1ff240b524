# SPDX-License-Identifier: GPL-2.0
# The front door. Kbuild reads Kbuild, not this file. Behind "make module" is tools/module/build;
# behind everything else is tools/bootstrap, which needs root, and the lab (tools/lab), which it builds.

VERBS := demo test bench deb kernel shell lint clean overlay help

.DEFAULT_GOAL := help
.PHONY: $(VERBS) module

# make module KDIR=dir RELEASE=release SOURCE=path CACHE=dir OUTPUT=dir
module:
	@exec tools/module/build $(if $(KDIR),--kdir '$(KDIR)') $(if $(RELEASE),--release '$(RELEASE)') \
		$(if $(SOURCE),--source '$(SOURCE)') $(if $(CACHE),--cache '$(CACHE)') \
		$(if $(OUTPUT),--output '$(OUTPUT)')

# make test T=name LANE=uml KERNEL=debug ROUNDS=n; make overlay KDIR=dir
export LAB_ARG_FILTER := $(T)
export LAB_ARG_LANE := $(LANE)
export LAB_ARG_KERNEL := $(KERNEL)
export LAB_ARG_ROUNDS := $(ROUNDS)
export LAB_ARG_KDIR := $(KDIR)
export LAB_ARG_PAIRS := $(PAIRS)
export LAB_ARG_SELF := $(SELF)
export LAB_ARG_PAGE := $(PAGE)

$(VERBS):
	@exec tools/bootstrap $@
