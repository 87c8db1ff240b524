/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The interface, version 4, that a plugin of QEMU's emulator calls: Debian has no header for it.
 */
#ifndef IPOIB_RS_COUNT_H
#define IPOIB_RS_COUNT_H

#include <stddef.h>

struct qemu_info;
struct qemu_plugin_insn;
struct qemu_plugin_scoreboard;
struct qemu_plugin_tb;

struct qemu_plugin_u64 {
	struct qemu_plugin_scoreboard *score;
	size_t offset;
};

enum { QEMU_PLUGIN_INLINE_ADD_U64 };
enum { QEMU_PLUGIN_CB_NO_REGS };

void qemu_plugin_register_vcpu_tb_trans_cb(unsigned long id,
					   void (*cb)(unsigned long id,
						      struct qemu_plugin_tb *tb));
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *tb);
struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *tb, size_t n);
unsigned long qemu_plugin_insn_vaddr(const struct qemu_plugin_insn *insn);
size_t qemu_plugin_insn_data(const struct qemu_plugin_insn *insn, void *data, size_t len);
struct qemu_plugin_scoreboard *qemu_plugin_scoreboard_new(size_t size);
unsigned long qemu_plugin_u64_sum(struct qemu_plugin_u64 counter);
void qemu_plugin_register_vcpu_insn_exec_inline_per_vcpu(struct qemu_plugin_insn *insn, int op,
							 struct qemu_plugin_u64 counter,
							 unsigned long value);
void qemu_plugin_register_vcpu_insn_exec_cb(struct qemu_plugin_insn *insn,
					    void (*cb)(unsigned int vcpu, void *data), int regs,
					    void *data);

#endif
