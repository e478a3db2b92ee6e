#!/usr/bin/env bash
# Checks that every test of a build has a name that says what it runs on: no dump of bytes, no address that changes from run to run.
#
# Usage: tests/scripts/test_names_test.sh BUILD_FOLDER     prints the names that do not; exits with 1 if there is any
set -euo pipefail
names=$(ctest --test-dir "$1" --show-only)
grep -q 'Total Tests: [1-9]' <<<"$names" || { echo "test_names_test: ctest lists no test in $1"; exit 1; }
if grep -E 'byte object|0x[0-9a-f]{4,}' <<<"$names"; then
  echo "test_names_test: give the INSTANTIATE_TEST_SUITE_P of these tests a name generator"
  exit 1
fi
