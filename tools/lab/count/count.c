// SPDX-License-Identifier: GPL-2.0
/*
 * A plugin for QEMU: counts how often each instruction of the guest's kernel is executed, and how
 * many there are in all.
 *
 * When the guest executes a mark, it waits, without its clock going on, until what was counted is
 * in a file: "OUT.N" is the Nth. Each line has the address of an instruction, in hexadecimal, and
 * how often it was executed; that at address 0 is user space as a whole.
 */

#include "count.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The instruction that mark.c executes. */
#define MARK		"\x0f\x1f\x80\x1b\x00\x1b\x00"
#define KERNEL		0xffff800000000000UL
/* More instructions than a kernel executes of its own in a run: 1 MiB of code has some 250,000. */
#define MOST		0x200000U
#define BUCKETS		(4 * MOST)

int qemu_plugin_version = 4;

static struct qemu_plugin_scoreboard *counts;
static unsigned long *addresses;
static unsigned int *buckets;
static unsigned int used = 1;	/* The first is for user space. */
static char out[4096];

static struct qemu_plugin_u64 counter(unsigned int n)
{
	struct qemu_plugin_u64 counter = { counts, n * sizeof(unsigned long) };

	return counter;
}

/* The number of the counter of an instruction. */
static unsigned int number(unsigned long address)
{
	unsigned int at = (address * 0x9e3779b97f4a7c15UL) >> 40;

	if (address < KERNEL)
		return 0;
	while (buckets[at %= BUCKETS]) {
		if (addresses[buckets[at]] == address)
			return buckets[at];
		at++;
	}
	if (used == MOST) {
		fprintf(stderr, "count: more than %u instructions\n", MOST);
		exit(1);
	}
	addresses[used] = address;
	buckets[at] = used;
	return used++;
}

static void mark(unsigned int vcpu, void *data)
{
	static unsigned int marks;
	char path[sizeof(out) + 16], temporary[sizeof(out) + 16];
	FILE *file;
	unsigned int n;

	snprintf(temporary, sizeof(temporary), "%s.tmp", out);
	snprintf(path, sizeof(path), "%s.%u", out, ++marks);
	file = fopen(temporary, "w");
	if (!file) {
		perror(temporary);
		exit(1);
	}
	for (n = 0; n < used; n++) {
		unsigned long count = qemu_plugin_u64_sum(counter(n));

		if (count)
			fprintf(file, "%lx %lu\n", addresses[n], count);
	}
	if (fclose(file) || rename(temporary, path)) {
		perror(path);
		exit(1);
	}
}

static void translate(unsigned long id, struct qemu_plugin_tb *tb)
{
	size_t count = qemu_plugin_tb_n_insns(tb), i;

	for (i = 0; i < count; i++) {
		struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(tb, i);
		unsigned int n = number(qemu_plugin_insn_vaddr(insn));
		char bytes[sizeof(MARK) - 1];

		qemu_plugin_register_vcpu_insn_exec_inline_per_vcpu(insn,
								    QEMU_PLUGIN_INLINE_ADD_U64,
								    counter(n), 1);
		if (qemu_plugin_insn_data(insn, bytes, sizeof(bytes)) == sizeof(bytes) &&
		    !memcmp(bytes, MARK, sizeof(bytes)))
			qemu_plugin_register_vcpu_insn_exec_cb(insn, mark, QEMU_PLUGIN_CB_NO_REGS,
							       NULL);
	}
}

int qemu_plugin_install(unsigned long id, const struct qemu_info *info, int argc, char **argv)
{
	int i;

	for (i = 0; i < argc; i++) {
		if (!strncmp(argv[i], "out=", 4))
			snprintf(out, sizeof(out), "%s", argv[i] + 4);
	}
	addresses = calloc(MOST, sizeof(*addresses));
	buckets = calloc(BUCKETS, sizeof(*buckets));
	counts = qemu_plugin_scoreboard_new(MOST * sizeof(unsigned long));
	if (!*out || !addresses || !buckets || !counts)
		return -1;

	qemu_plugin_register_vcpu_tb_trans_cb(id, translate);
	return 0;
}
