# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
# shellcheck disable=SC2154  # they are set by common.sh and by build
#
# Finds or makes a build directory that holds the metadata of the kernel's Rust crates.
#
# A kernel's header package has all that a module in C needs. One in Rust also needs the metadata
# of the crates core, kernel and so on, which is in the headers of some distributions. Elsewhere it
# is made here from the kernel's source: with the same source, configuration and compilers the
# crates come out as they are in the kernel. The result is a tree of links into the headers, with
# the metadata beside them, and is kept per kernel.

# Scratch space for the source and its build, in MiB.
readonly TREE_MIB=1200
# Names how trees are made. A new version of ipoib_rs keeps those of the one before, since the
# source of an older kernel may be gone by then.
readonly TREE_FORMAT=1

# Sets tree to a directory for make -C. $1 is the source that the user named, or nothing.
find_tree()
{
	if [ -e "$kdir/rust/libkernel.rmeta" ]; then
		tree=$kdir
		find_bindgen any
		return
	fi
	find_bindgen same
	[ -e "$("$rustc" --print sysroot)/lib/rustlib/src/rust/library/core/src/lib.rs" ] ||
		die "the source of Rust's core library is not installed, and the headers of Linux $release come without metadata" \
		    "$(install_hint rust-src)"
	tree=$cache/metadata/$release-$(tree_id)
	# Held to the end: who makes a tree removes others of this kernel, but none that is in use.
	exec 8>"$cache/metadata/$release.lock"
	flock -n -s 8 || wait_for_lock -s
	if [ ! -e "$tree/.done" ]; then
		flock -n 8 || wait_for_lock -x
		[ -e "$tree/.done" ] || make_tree "$1"
		flock -s 8
	fi
	touch "$tree/.done"
}

wait_for_lock()
{
	say "waiting for another build for Linux $release"
	flock "$1" 8
}

# A short name for all that goes into a tree.
tree_id()
{
	{
		printf '%s\n' "$TREE_FORMAT" "$kdir" "$("$rustc" --version)" "$("$bindgen" --version)"
		cat "$kdir/include/generated/autoconf.h" "$kdir/Module.symvers"
	} | sha256sum | cut -c1-12
}

# Sets source_tree to the unpacked source of the kernel.
find_source()
{
	local wanted=$1 package owner found

	package=linux-source-$(printf '%s' "$version" | cut -d. -f1,2)
	if [ -z "$wanted" ]; then
		for found in "/usr/src/$package.tar.xz" "/usr/src/linux-source-$version.tar.xz" \
			     "/usr/src/linux-$version"; do
			[ ! -e "$found" ] || { wanted=$found; break; }
		done
	fi
	if [ -z "$wanted" ]; then
		owner=$(dpkg-query -f '${Version}' -W "linux-headers-$release" 2>/dev/null || true)
		die "the headers of Linux $release come without the metadata of the kernel's Rust code, and its source is not installed" \
		    "Install the source that they were made from: apt install $package${owner:+=$owner}" \
		    "or name it: make module SOURCE=<directory or tar archive>"
	fi
	[ -r "$wanted" ] || die "there is no kernel source at $wanted that can be read" \
		"Name a directory or a tar archive: make module SOURCE=<path>"
	if [ -d "$wanted" ]; then
		source_tree=$(readlink -f "$wanted")
		need_plain "kernel's source" "$source_tree"
		for found in .config include/config arch/x86/include/generated; do
			[ ! -e "$source_tree/$found" ] ||
				die "$source_tree was configured in place, which keeps it from being built elsewhere" \
				    "Clean it (make -C $source_tree mrproper), or name another one."
		done
		return
	fi
	need_space "$cache" "$TREE_MIB" "set IPOIB_RS_CACHE to a directory on another disk"
	say "unpack $wanted"
	source_tree=$work/source
	mkdir "$source_tree"
	# What the crates are not made from.
	if ! tar -x --force-local -f "$wanted" -C "$source_tree" --strip-components=1 --wildcards \
		--exclude='*/Documentation/*/*' --exclude='*/tools/testing' --exclude='*/tools/perf' \
		--exclude='*/sound/*.c' --exclude='*/drivers/*.[cS]' --exclude='*/fs/*.c' \
		--exclude='*/arch/*/boot/dts' >"$work/unpack.log" 2>&1; then
		show_failure "$work/unpack.log"
		die "$wanted could not be unpacked" "It may be damaged: install it again."
	fi
}

# Sets srctree to where the headers' own Makefile finds the kernel's build system.
find_srctree()
{
	srctree=$(sed -n 's/^include \(.*\)\/Makefile$/\1/p' "$kdir/Makefile" | head -n 1)
	if [ -n "$srctree" ] && [ ! -d "$srctree" ]; then
		# Unpacked somewhere else than it is meant for.
		srctree=$(readlink -f "$kdir/../${srctree##*/}" || true)
	fi
	: "${srctree:=$kdir}"
	[ -e "$srctree/scripts/Makefile.build" ] || [ -e "$kdir/scripts/Makefile.build" ] ||
		die "the headers of Linux $release are not complete: $srctree has no Kbuild" \
		    "Reinstall linux-headers-$release."
}

# Ends unless the source is that of the headers: each header that both have is the same.
check_source()
{
	local theirs differs

	theirs=$(make -s -C "$source_tree" kernelversion 2>/dev/null || true)
	[ "${theirs%%-*}" = "$version" ] ||
		die "the kernel source is that of Linux ${theirs:-?}, and the headers are of $version" \
		    "Install both in the same version: apt policy linux-headers-$release linux-source-${version%.*}"
	differs=$(cd "$srctree" && find include -name '*.h' -type f -print0 |
		  xargs -0 -r sha256sum |
		  (cd "$source_tree" || exit; sha256sum --check --quiet --ignore-missing 2>/dev/null || true) |
		  sed -n 1p)
	[ -z "$differs" ] ||
		die "the kernel source is not the one that the headers of Linux $release were made from: ${differs%%:*} differs" \
		    "Install both in the same version: apt policy linux-headers-$release linux-source-${version%.*}"
}

# Makes $tree from the kernel source, $1 or what is installed.
make_tree()
{
	local objects=$work/objects log=$cache/metadata/$release.log new=$tree.new

	find_srctree
	check_tools
	find_source "$1"
	check_source
	need_space "$cache" "$((TREE_MIB / 2))" "set IPOIB_RS_CACHE to a directory on another disk"

	say "make the metadata of the kernel's Rust crates: one to three minutes, once for Linux $release"
	mkdir -p "$objects"
	cp "$config" "$objects/.config"
	: >"$log"
	kernel_make olddefconfig syncconfig || no_tree
	check_configuration
	kernel_make prepare || no_tree

	rm -rf "$new"
	mkdir -p "$new/rust" "$new/scripts"
	link_into "$new" "$kdir"/.kernelvariables "$kdir"/*
	# Else what is written into these would be written into the headers.
	rm -f "$new/Makefile" "$new/.done"
	link_into "$new/scripts" "$kdir"/scripts/*
	ln -sfn "$(readlink -f "$config")" "$new/.config"
	[ ! -e "$objects/scripts/target.json" ] || cp "$objects/scripts/target.json" "$new/scripts"
	cp "$objects"/rust/*.rmeta "$objects"/rust/*.so "$new/rust"
	printf '# Generated by ipoib_rs: the headers of Linux %s, with Rust metadata.\n' "$release" >"$new/Makefile"
	printf 'KBUILD_OUTPUT=%s\ninclude %s/Makefile\n' "$tree" "$srctree" >>"$new/Makefile"
	: >"$new/.done"
	remove_old "$new"
	mv "$new" "$tree"
}

# Removes trees of kernels whose headers are gone, and of this kernel what an earlier version of the
# headers, the compilers or this script has made or begun, but for what was used in the last day: two
# checkouts may share the cache. $1 is not for removal.
remove_old()
{
	local old

	while read -r old; do
		case ${old##*/} in
		"$release"-????????????)
			if [ ! -e "$old/.config" ] || [ -z "$(find "$old/.done" -mtime 0 2>/dev/null)" ]; then
				rm -rf "$old"
			fi
			;;
		"$release"-????????????.new)
			[ "$old" = "$1" ] || rm -rf "$old"
			;;
		*.new) ;;
		*)
			[ -e "$old/.config" ] || rm -rf "$old"
			;;
		esac
	done < <(find "$cache/metadata" -mindepth 1 -maxdepth 1 -type d)
}

# Links the files "$@", where they exist, into the directory $1, unless it has them.
link_into()
{
	local dir=$1 file

	shift
	for file; do
		[ ! -e "$file" ] || [ -e "$dir/${file##*/}" ] || ln -s "$(readlink -f "$file")" "$dir/${file##*/}"
	done
}

# Runs make on the kernel's source, with metadata in the place of objects.
kernel_make()
{
	IPOIB_RS_RUSTC="$rustc" make -j"$(nproc)" -C "$source_tree" O="$objects" "${compilers[@]}" \
		RUSTC="$here/rustc-metadata" HOSTRUSTC="$here/rustc-metadata" "$@" >>"$log" 2>&1 </dev/null
}

no_tree()
{
	show_failure "$log"
	die "the metadata of the kernel's Rust crates could not be made" "log: $log"
}

# Ends unless what Kbuild needs beside the compilers is here.
check_tools()
{
	local tool

	for tool in flex bison bc tar xz python3; do
		command -v "$tool" >/dev/null || die "$tool is not installed" "$(install_hint "${tool/%xz/xz-utils}")"
	done
}

# Ends unless the compilers here give the kernel's configuration, which holds what they can do. The
# text of the C compiler's version may differ: its major version is the right one.
check_configuration()
{
	local theirs=$kdir/include/generated/autoconf.h ours=$objects/include/generated/autoconf.h differs hint

	differs=$(diff "$theirs" "$ours" | sed -n 's/^[<>] #define CONFIG_\([A-Za-z0-9_]*\).*/\1/p' |
		  grep -vx CC_VERSION_TEXT | sed -n 1p || true)
	[ -n "$differs" ] || return 0
	case $differs in
	PAHOLE_*) hint=$(install_hint pahole) ;;
	OPENSSL_*) hint=$(install_hint openssl) ;;
	*) hint="A compiler or tool is not the one that the kernel was built with; they are named in $config." ;;
	esac
	die "CONFIG_$differs comes out differently here ($(defined "$differs" "$ours")) than in the configuration of Linux $release ($(defined "$differs" "$theirs"))" \
	    "$hint"
}

# The value of CONFIG_$1 in the header $2.
defined()
{
	local value

	value=$(sed -n "s/^#define CONFIG_$1 //p" "$2")
	printf '%s\n' "${value:-not set}"
}
