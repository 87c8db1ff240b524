/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The part of iproute2 that link_ipoib_rs.c uses. iproute2 installs no header for it: the functions
 * are exported by the ip program, the structure is what it looks up. Both have been so since
 * iproute2 4.15.
 */
#ifndef IPOIB_RS_IP_H
#define IPOIB_RS_IP_H

#include <stdbool.h>
#include <stdio.h>
#include <linux/rtnetlink.h>

/* A link type's options. ip looks for the symbol <type>_link_util and links it into its list. */
struct link_util {
	struct link_util *next;
	const char *id;
	int maxattr;
	int (*parse_opt)(struct link_util *lu, int argc, char **argv, struct nlmsghdr *n);
	void (*print_opt)(struct link_util *lu, FILE *f, struct rtattr *tb[]);
	void (*print_xstats)(struct link_util *lu, FILE *f, struct rtattr *xstats);
	void (*print_help)(struct link_util *lu, int argc, char **argv, FILE *f);
	int (*parse_ifla_xstats)(struct link_util *lu, int argc, char **argv);
	int (*print_ifla_xstats)(struct nlmsghdr *n, void *arg);
};

#define ARRAY_SIZE(array) (sizeof(array) / sizeof((array)[0]))

/* enum output_type there */
#define PRINT_JSON 2

/* Appends an attribute; maxlen bounds the whole message. Says why on stderr if it returns -1. */
int addattr_l(struct nlmsghdr *n, int maxlen, int type, const void *data, int len);

/* Whether ip was called with -json. */
bool is_json_context(void);

/* With PRINT_JSON, writes a string field under -json, and nothing otherwise: then without a use for
 * colour and format.
 */
int print_color_string(int type, int colour, const char *key, const char *format,
		       const char *value);

#endif
