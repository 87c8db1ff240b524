# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
# shellcheck disable=SC2154  # module and needs are set by build
#
# Helpers shared by the scripts in this directory: messages, a kernel's configuration, and the compilers
# that the kernel was built with.

# Colours, for a terminal only, and as NO_COLOR says.
bold='' red='' plain=''
if [ -t 2 ] && [ -z "${NO_COLOR-}" ]; then
	bold=$'\033[1m' red=$'\033[31m' plain=$'\033[0m'
fi

say()
{
	printf '%s::%s %s\n' "$bold" "$plain" "$*" >&2
}

# Ends with one sentence that says what is wrong, and lines that say what to do.
die()
{
	printf '%serror:%s %s\n' "$red" "$plain" "$1" >&2
	shift
	[ $# -eq 0 ] || printf '       %s\n' "$@" >&2
	exit 1
}

# Whether this is a system that installs packages with apt.
has_apt()
{
	command -v apt-get >/dev/null
}

# The line that tells how to get Debian packages, or what they are called elsewhere.
install_hint()
{
	if has_apt; then
		printf 'Install it: apt install %s' "$*"
	else
		printf "Install it with this system's package manager (Debian's packages: %s)." "$*"
	fi
}

# The value of CONFIG_$1 in the kernel's configuration $config, without quotes; nothing if it is not set.
config()
{
	sed -n "s/^CONFIG_$1=//p" "$config" | tr -d '"'
}

# Sets kdir, release, version and config for the kernel whose build directory is $1, or for the
# release $2, or for the running kernel.
find_kernel()
{
	kdir=$1
	release=$2
	: "${release:=$([ -n "$kdir" ] || uname -r)}"
	if [ -z "$kdir" ]; then
		kdir=/lib/modules/$release/build
		[ -e "$kdir" ] ||
			die "the headers of Linux $release are not installed ($kdir is missing)" \
			    "$(install_hint "linux-headers-$release")"
	fi
	[ -d "$kdir" ] || die "$kdir is not a directory" \
		"Name the O= directory of a kernel that was built, or /lib/modules/<release>/build."
	kdir=$(readlink -f "$kdir")

	config=$kdir/.config
	[ -e "$config" ] || config=$kdir/include/config/auto.conf
	if [ ! -e "$config" ] || [ ! -e "$kdir/include/generated/autoconf.h" ]; then
		die "$kdir is not the build directory of a kernel: it has no configuration" \
		    "Name the O= directory of a kernel that was built, or /lib/modules/<release>/build."
	fi
	if [ -z "$release" ]; then
		release=$(cat "$kdir/include/config/kernel.release" 2>/dev/null ||
			  sed -n 's/.*UTS_RELEASE "\(.*\)"/\1/p' "$kdir/include/generated/utsrelease.h" 2>/dev/null || true)
	fi
	[ -n "$release" ] || die "$kdir does not say its release (include/generated/utsrelease.h is missing)" \
		"Build that kernel first."
	version=${release%%[!0-9.]*}
}

# The first of the options $1 that the kernel's configuration does not have.
missing_option()
{
	local option

	for option in $1; do
		[ -n "$(config "$option")" ] || { printf '%s\n' "$option"; break; }
	done
}

# Ends unless the module can be built for this kernel at all, for which it needs the options $needs.
check_kernel()
{
	local missing

	if [ "$(printf '7.3\n%s\n' "$version" | sort -V | head -n 1)" != 7.3 ]; then
		die "Linux $release is too old: $module needs 7.3" \
		    "Debian 13 has it in trixie-backports: apt install -t trixie-backports linux-image-amd64 linux-headers-amd64"
	fi
	if [ "$(printf '7.4\n%s\n' "$version" | sort -V | head -n 1)" = 7.4 ]; then
		die "Linux $release is too new: this version of $module is for 7.3, and the kernel's Rust API changes with each" \
		    "Look for a newer version of $module, or boot Linux 7.3."
	fi
	[ "$(config RUST)" = y ] ||
		die "Linux $release is built without Rust (CONFIG_RUST is not set)" \
		    "Install a kernel that has it, such as Debian's from trixie-backports."
	missing=$(missing_option "$needs")
	[ -z "$missing" ] ||
		die "Linux $release is built without CONFIG_$missing, which $module needs" \
		    "Install a kernel that has it, such as Debian's linux-image-amd64."
	[ -z "$(config CFI)" ] ||
		die "Linux $release is built with CONFIG_CFI, with which $module does not run" \
		    "Boot a kernel without it, such as Debian's."
	[ -s "$kdir/Module.symvers" ] ||
		die "$kdir has no Module.symvers: that kernel was configured, but not built" \
		    "Build it (make -C $kdir), or install the distribution's header package."
}

# The programs called $2 in PATH, after the one that the user has named in $1, if any.
programs()
{
	[ -z "$1" ] || command -v "$1" || true
	type -aP "$2" || true
}

# Sets compilers, arguments for make, to the C compiler that the kernel was built with.
find_cc()
{
	local text major cc dir

	text=$(config CC_VERSION_TEXT)
	if [ -n "$(config CC_IS_CLANG)" ]; then
		major=$(config CLANG_VERSION)
		major=$((${major:-0} / 10000))
		if dir=/usr/lib/llvm-$major/bin && [ -x "$dir/clang" ]; then
			compilers=("LLVM=$dir/")
		elif command -v "clang-$major" >/dev/null; then
			compilers=("LLVM=-$major")
		elif clang --version 2>/dev/null | grep -q "clang version $major\\."; then
			compilers=(LLVM=1)
		else
			die "Linux $release was built with clang $major ($text), which is not installed" \
			    "$(install_hint "clang-$major lld-$major llvm-$major")"
		fi
		return
	fi
	major=$(config GCC_VERSION)
	major=$((${major:-0} / 10000))
	for cc in "${text%% *}" "gcc-$major" gcc; do
		if [ "$("$cc" -dumpversion 2>/dev/null | cut -d. -f1)" = "$major" ]; then
			compilers=("CC=$cc" "HOSTCC=$cc")
			return
		fi
	done
	die "Linux $release was built with gcc $major ($text), which is not installed" \
	    "$(install_hint "gcc-$major")"
}

# Adds the Rust compiler that the kernel was built with to compilers, and sets rustc. Nothing but the
# same version, to the letter, reads the kernel's metadata and names its symbols the same way.
find_rustc()
{
	local wanted minor have='' name text

	wanted=$(config RUSTC_VERSION_TEXT)
	minor=$(printf '%s\n' "$wanted" | sed -n 's/^rustc \([0-9]*\.[0-9]*\)\..*/\1/p')
	while read -r name; do
		text=$("$name" --version 2>/dev/null </dev/null || true)
		if [ "$text" = "$wanted" ]; then
			rustc=$name
			compilers+=("RUSTC=$rustc" "HOSTRUSTC=$rustc")
			return
		fi
		: "${have:=$text}"
	done < <(programs "${RUSTC:-}" rustc
		 programs "/usr/lib/rust-$minor/bin/rustc" "rustc-$minor")
	[ -n "$have" ] ||
		die "Linux $release was built with $wanted, and there is no rustc here" \
		    "$(install_hint rustc)"
	die "Linux $release was built with $wanted, and the compiler here is $have" \
	    "Install that version$(has_apt && printf ' (apt policy rustc)'), or set RUSTC to it."
}

# Adds bindgen to compilers. $1: "same" if it must be the version that the kernel was built with.
find_bindgen()
{
	local wanted have='' name text

	wanted=$(config BINDGEN_VERSION_TEXT)
	bindgen=
	while [ -z "$bindgen" ] && read -r name; do
		text=$("$name" --version 2>/dev/null </dev/null || true)
		if [ "$1" != same ] || [ "$text" = "${wanted:=$text}" ]; then
			bindgen=$name
		fi
		: "${have:=${text:-$name, which does not run}}"
	done < <(programs "${BINDGEN:-}" bindgen)
	[ -n "$have" ] || die "bindgen is not installed" "$(install_hint bindgen)"
	[ -n "$bindgen" ] ||
		die "Linux $release was built with $wanted, and the one here is $have" \
		    "Install that version$(has_apt && printf ' (apt policy bindgen)'), or set BINDGEN to it."
	echo 'int ipoib_rs;' >"${work:?}/bindgen.h"
	"$bindgen" "${work:?}/bindgen.h" >/dev/null 2>&1 || die "bindgen finds no libclang" "$(install_hint libclang-dev)"
	compilers+=("BINDGEN=$bindgen")
}

# MiB that are free where $1 is; nothing if that cannot be told.
free_space()
{
	df --output=avail -m "$1" 2>/dev/null | tail -n 1 || true
}

# Ends unless the directory $1 has $2 MiB free. $3 says how to use another directory.
need_space()
{
	local free

	free=$(free_space "$1")
	[ "${free:-$2}" -ge "$2" ] ||
		die "$1 has $((free)) MB free, and $2 MB are needed" "Free some space, or $3."
}

# Ends if the path $2 is one that Kbuild cannot work with. $1 says what it is.
need_plain()
{
	case $2 in
	*[[:space:]:]*) die "kernel builds cannot bear a space or a colon in a path: the $1 is $2" \
		"Move it, or name another place." ;;
	esac
}

# What the log $1 of a failed command has to say, for the user. A full disk may have no room for the log.
show_failure()
{
	local free

	free=$(free_space "$1")
	grep -m 5 -B 2 -A 12 -E '(^|[^a-z])(error|ERROR|Error [0-9]+)(\[|:|$)' "$1" >&2 || tail -n 20 "$1" >&2
	if [ "${free:-16}" -lt 16 ] || grep -q 'No space left on device' "$1"; then
		die "the disk is full" "Free some space and run it again." "log: $1"
	fi
}
