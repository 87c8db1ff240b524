// SPDX-License-Identifier: GPL-2.0
/*
 * The options of "ip link ... type ipoib_rs": a plugin for iproute2, which loads
 * <libdir>/ip/link_<type>.so for a type that it does not know.
 *
 * Options, output and JSON fields are those that ip has for the type ipoib, so that scripts need
 * another type and nothing else; device and port, which it does not have, stand behind them.
 *
 * iproute2 promises plugins nothing. So this one calls few functions, such as have not changed
 * for years, and is linked with -z now: where one is missing, it does not load, and ip treats the
 * type as one without options.
 */
#include <ctype.h>
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <linux/if_link.h>

#include "ip.h"

/* As ip does for its own types: less than it has. */
#define MAX_MESSAGE 1024

/* Attributes that <linux/if_link.h> does not have: name and port of the RDMA device. */
#define IFLA_IPOIB_RS_DEVICE 32
#define IFLA_IPOIB_RS_PORT 33
#define IFLA_IPOIB_RS_MAX IFLA_IPOIB_RS_PORT

/* That of an RDMA device's name, its terminating zero included. */
#define MAX_NAME 64

static const char * const modes[] = {
	[IPOIB_MODE_DATAGRAM] = "datagram",
	[IPOIB_MODE_CONNECTED] = "connected",
};

static const char * const options[] = {
	[IFLA_IPOIB_PKEY] = "pkey",
	[IFLA_IPOIB_MODE] = "mode",
	[IFLA_IPOIB_UMCAST] = "umcast",
	[IFLA_IPOIB_RS_DEVICE] = "device",
	[IFLA_IPOIB_RS_PORT] = "port",
};

static void usage(FILE *f)
{
	fputs("Usage: ... ipoib_rs [ device DEVICE [ port PORT ] ]\n"
	      "\t\t [ pkey PKEY ]\n"
	      "\t\t [ mode {datagram | connected} ]\n"
	      "\t\t [ umcast {0|1} ]\n"
	      "\n"
	      "DEVICE := name of an RDMA device; not needed with \"link\"\n"
	      "PORT   := its port, from 1\n"
	      "PKEY   := 0x8001-0xffff\n", f);
}

static int refuse(const char *value, const char *why)
{
	fprintf(stderr, "Error: argument \"%s\" is wrong: %s\n", value, why);
	return -1;
}

/* A decimal, octal or hexadecimal number that is not above max. */
static int parse_number(const char *text, unsigned long max, __u32 *value)
{
	unsigned long number;
	char *end;

	if (!isdigit((unsigned char)*text))
		return -1;
	errno = 0;
	number = strtoul(text, &end, 0);
	if (errno || *end || number > max)
		return -1;
	*value = number;
	return 0;
}

/* The index of a word in a list that may have holes; -1 if it is not there. */
static int find(const char * const *words, size_t count, const char *word)
{
	size_t i;

	for (i = 0; i < count; i++) {
		if (words[i] && !strcmp(words[i], word))
			return i;
	}
	return -1;
}

static int parse_u16(struct nlmsghdr *n, int option, const char *value)
{
	__u32 number;
	__u16 wire;
	int mode;

	switch (option) {
	case IFLA_IPOIB_PKEY:
		/* Which of the 16-bit numbers are P_Keys of the port, the driver knows. */
		if (parse_number(value, 0xffff, &number))
			return refuse(value, "pkey must be a number, at most 0xffff");
		break;
	case IFLA_IPOIB_MODE:
		mode = find(modes, ARRAY_SIZE(modes), value);
		if (mode < 0)
			return refuse(value, "mode must be datagram or connected");
		number = mode;
		break;
	default:
		if (parse_number(value, 1, &number))
			return refuse(value, "umcast must be 0 or 1");
		break;
	}
	wire = number;
	return addattr_l(n, MAX_MESSAGE, option, &wire, sizeof(wire));
}

static int parse_value(struct nlmsghdr *n, int option, const char *value)
{
	__u32 number;

	switch (option) {
	case IFLA_IPOIB_RS_DEVICE:
		if (!*value || strlen(value) >= MAX_NAME)
			return refuse(value, "device must be the name of an RDMA device");
		return addattr_l(n, MAX_MESSAGE, option, value, strlen(value) + 1);
	case IFLA_IPOIB_RS_PORT:
		if (parse_number(value, UINT32_MAX, &number) || !number)
			return refuse(value, "port must be a number, from 1");
		return addattr_l(n, MAX_MESSAGE, option, &number, sizeof(number));
	default:
		return parse_u16(n, option, value);
	}
}

static int parse_opt(struct link_util *lu, int argc, char **argv, struct nlmsghdr *n)
{
	(void)lu;

	for (; argc > 0; argc--, argv++) {
		const char *option = *argv;
		int attribute;

		if (!strcmp(option, "help")) {
			usage(stderr);
			return -1;
		}
		attribute = find(options, ARRAY_SIZE(options), option);
		if (attribute < 0) {
			fprintf(stderr, "ipoib_rs: unknown option \"%s\"?\n", option);
			usage(stderr);
			return -1;
		}

		argc--;
		argv++;
		if (argc <= 0) {
			fprintf(stderr, "Error: option \"%s\" needs a value. Try option \"help\"\n",
				option);
			return -1;
		}
		if (parse_value(n, attribute, *argv))
			return -1;
	}
	return 0;
}

static int read_u16(struct rtattr *tb[], int attribute, __u16 *value)
{
	const struct rtattr *rta = tb[attribute];

	if (!rta || RTA_PAYLOAD(rta) < sizeof(*value))
		return -1;
	memcpy(value, RTA_DATA(rta), sizeof(*value));
	return 0;
}

/* Text has the name, JSON the key: for the P_Key ip has two. */
static void print_field(FILE *f, const char *name, const char *key, const char *value)
{
	if (is_json_context())
		print_color_string(PRINT_JSON, 0, key, NULL, value);
	else
		fprintf(f, "%s %s ", name, value);
}

/* The port that the interface is on, if the kernel says so. */
static void print_place(FILE *f, struct rtattr *tb[])
{
	const struct rtattr *rta = tb[IFLA_IPOIB_RS_DEVICE];
	char text[MAX_NAME] = "";
	size_t len;
	__u32 port;

	if (rta) {
		len = RTA_PAYLOAD(rta);
		memcpy(text, RTA_DATA(rta), len < sizeof(text) ? len : sizeof(text) - 1);
		print_field(f, "device", "device", text);
	}

	rta = tb[IFLA_IPOIB_RS_PORT];
	if (rta && RTA_PAYLOAD(rta) >= sizeof(port)) {
		memcpy(&port, RTA_DATA(rta), sizeof(port));
		snprintf(text, sizeof(text), "%u", port);
		print_field(f, "port", "port", text);
	}
}

static void print_opt(struct link_util *lu, FILE *f, struct rtattr *tb[])
{
	char text[16];
	__u16 value;

	(void)lu;

	if (!tb)
		return;
	if (!read_u16(tb, IFLA_IPOIB_PKEY, &value)) {
		snprintf(text, sizeof(text), "%#.4x", value);
		print_field(f, "pkey", "key", text);
	}
	if (!read_u16(tb, IFLA_IPOIB_MODE, &value))
		print_field(f, "mode", "mode",
			    value < ARRAY_SIZE(modes) ? modes[value] : "unknown");
	if (!read_u16(tb, IFLA_IPOIB_UMCAST, &value)) {
		snprintf(text, sizeof(text), "%.4x", value);
		print_field(f, "umcast", "umcast", text);
	}
	print_place(f, tb);
}

static void print_help(struct link_util *lu, int argc, char **argv, FILE *f)
{
	(void)lu;
	(void)argc;
	(void)argv;

	usage(f);
}

/* The one symbol that ip looks up; all others are hidden. */
__attribute__((visibility("default")))
struct link_util ipoib_rs_link_util = {
	.id = "ipoib_rs",
	.maxattr = IFLA_IPOIB_RS_MAX,
	.parse_opt = parse_opt,
	.print_opt = print_opt,
	.print_help = print_help,
};
