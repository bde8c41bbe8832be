#!/bin/sh
# Makes the NATS CLI available in target/tools/nats, where there is none on the search path and Go is
# installed. The CLI is for people and for a few tests, which say so when it is missing: never fails.
set -eu

version=v0.5.1
cd "$(dirname "$0")/.."
tools=target/tools

for candidate in "${NATS_CLI:-}" "$(command -v nats || true)" "${HOME:-/}/go/bin/nats" "$tools/nats"; do
  if [ -n "$candidate" ] && [ -x "$candidate" ]; then
    echo "fetch-nats-cli: $candidate"
    exit 0
  fi
done
if ! command -v go >/dev/null 2>&1; then
  echo "fetch-nats-cli: no \`nats\` and no Go to build it with: tests that use it will be skipped"
  exit 0
fi
mkdir -p "$tools"
echo "fetch-nats-cli: building the NATS CLI $version with Go"
GOBIN="$(pwd)/$tools" go install "github.com/nats-io/natscli/nats@$version" ||
  echo "fetch-nats-cli: the build failed: tests that use the CLI will be skipped"
