# SPDX-License-Identifier: GPL-2.0
# The front door. Everything behind it is tools/bootstrap, which needs root, and the lab
# (tools/lab), which it builds. Kbuild reads Kbuild, not this file.

VERBS := demo test bench module kernel shell lint clean overlay help

.DEFAULT_GOAL := help
.PHONY: $(VERBS)

# make test T=name LANE=uml KERNEL=debug ROUNDS=n; make module KDIR=dir; make overlay KDIR=dir
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
