// SPDX-License-Identifier: GPL-2.0
/*
 * The program with which a guest has the plugin write its counts: a nop that nobody else has.
 */

int main(void)
{
	asm volatile("nopl 0x1b001b(%rax)");
	return 0;
}
