#!/bin/sh
# Checks what a build needs beside the Rust toolchain: a C compiler (bundled SQLite and the TLS library),
# make, and openssl (certificates of the leaf links). Installs what is missing where it may: as root, or
# with sudo that asks for no password. Otherwise it says what to install.
set -eu

missing=""
command -v cargo >/dev/null 2>&1 ||
  { echo "check-tools: cargo is not installed; install Rust with rustup, rust-toolchain.toml names the version" >&2; exit 69; }
command -v cc >/dev/null 2>&1 || command -v gcc >/dev/null 2>&1 || missing="$missing gcc libc6-dev"
command -v make >/dev/null 2>&1 || missing="$missing make"
command -v openssl >/dev/null 2>&1 || missing="$missing openssl"

if [ -z "$missing" ]; then
  echo "check-tools: C compiler, make and openssl are there"
  exit 0
fi

if [ "$(id -u)" = 0 ]; then
  as_root=""
elif sudo -n true 2>/dev/null; then
  as_root="sudo -n"
else
  echo "check-tools: missing, and not allowed to install:$missing" >&2
  exit 69
fi
command -v apt-get >/dev/null 2>&1 ||
  { echo "check-tools: missing, and no apt-get to install them with:$missing" >&2; exit 69; }
echo "check-tools: installing$missing"
$as_root apt-get update -q
# shellcheck disable=SC2086 # a list of packages
$as_root apt-get install -q -y --no-install-recommends $missing
