#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Sees to it that what the build needs is there: installs it by apt where apt is, else says what is
# missing and fails. What it can do without comes along when something is installed anyhow, and may be missing.
# Costs a few file look-ups and says nothing when nothing is missing.
set -u

# Whether a compiler is here; CC and CXX may be several words, as "ccache gcc".
has_compiler() {
    command -v "${1%% *}" >/dev/null 2>&1
}

# Whether a header can be included: in the usual places first, else the compiler is asked.
has_header() {
    for dir in /usr/include /usr/local/include; do
        [ -f "$dir/$1" ] && return 0
    done
    has_compiler "${CC:-cc}" && echo "#include <$1>" | ${CC:-cc} -E -x c - >/dev/null 2>&1
}

# Fill in: packages (names in Debian), wanted (the same for people without apt).
look() {
    packages= wanted= also=
    has_compiler "${CC:-cc}" || need gcc "a C11 compiler (cc)"
    has_compiler "${CXX:-c++}" || need g++ "a C++17 compiler (c++), for the header test"
    has_header stdio.h || need libc6-dev "the C library's headers"
    command -v cmake >/dev/null 2>&1 || need cmake "CMake, 3.22 or newer"
    has_header dnnl.h || need libdnnl-dev "oneDNN with its headers"
    has_header jansson.h || need libjansson-dev "jansson with its headers"
    has_header png.h || also="$also libpng-dev" # pictures of the heat example
    # Modules for programs under mpirun.
    command -v mpicc.openmpi >/dev/null 2>&1 || also="$also libopenmpi-dev openmpi-bin"
    command -v mpicc.mpich >/dev/null 2>&1 || also="$also libmpich-dev mpich"
}

need() {
    packages="$packages $1"
    wanted="$wanted
  $2 (in Debian: $1)"
}

give_up() {
    echo "sherd needs what is not here:$wanted" >&2
    echo "$1" >&2
    exit 1
}

# Install $packages; all of apt's talk goes to the log.
install() {
    apt="$root env DEBIAN_FRONTEND=noninteractive apt-get -q -y -o DPkg::Lock::Timeout=120"
    order="install --no-install-recommends$packages"
    apt-get -s $order >/dev/null 2>&1 || $apt update || return 1
    $apt $order && return 0
    $apt update && $apt $order # lists that are old name files that are gone
}

# The same for what may be missing.
install_also() {
    [ -z "$also" ] || $apt install --no-install-recommends $also || true
}

look
[ -z "$packages" ] && exit 0

command -v apt-get >/dev/null 2>&1 ||
    give_up "There is no apt-get to install it with: install it by hand, then run make again."
root=
if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null 2>&1 ||
        give_up "You are not root and there is no sudo. As root: apt-get install$packages"
    root=sudo
fi

echo "sherd: installing$packages"
log=$(mktemp) || exit 1
trap 'rm -f "$log"' EXIT
if ! install >"$log" 2>&1; then
    tail -n 15 "$log" >&2
    give_up "apt-get could not install it; its last words are above."
fi
install_also >>"$log" 2>&1
look
[ -z "$packages" ] || give_up "apt-get ran, and still it is not found."
