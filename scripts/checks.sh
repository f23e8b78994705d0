# What scripts/test and tools/check share; they source this file. `part` prints a header, `check` and
# `count_*` run something and add it to `passed` and `failed`, `finish` prints the sum.
# shellcheck shell=bash

passed=0
failed=0
part_started_s=$SECONDS
part_name=

end_part() {
  [ -z "$part_name" ] || printf -- '-- %s: %d s\n' "$part_name" $((SECONDS - part_started_s))
}

part() {
  end_part
  part_name=$1
  part_started_s=$SECONDS
  printf '\n== %s\n' "$part_name"
}

# check COMMAND...: one check, failed when the command fails.
check() {
  if "$@"; then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
    return 1
  fi
}

# add_counts STATUS PASSED FAILED: a runner that fails without a failed test counts as one failure.
add_counts() {
  local status=$1 good=${2:-0} bad=${3:-0}
  if [ "$status" != 0 ] && [ "$bad" = 0 ]; then bad=1; fi
  if [ "$good" = 0 ] && [ "$bad" = 0 ]; then bad=1; fi
  passed=$((passed + good))
  failed=$((failed + bad))
}

# Reads `97% tests passed, 2 tests failed out of 80`.
count_ctest() {
  local output status bad total
  output=$(mktemp)
  "$@" 2>&1 | tee "$output" | grep --line-buffered -vE '^ *(Start +[0-9]+:|[0-9]+/[0-9]+ .* Passed )'
  status=${PIPESTATUS[0]}
  read -r bad total < <(sed -nE 's/.* ([0-9]+) tests? failed out of ([0-9]+).*/\1 \2/p' "$output")
  rm "$output"
  add_counts "$status" $((${total:-0} - ${bad:-0})) "${bad:-0}"
}

# Reads `2 failed, 70 passed, 1 error in 3.21s`.
count_pytest() {
  local output status good bad errors summary
  output=$(mktemp)
  "$@" 2>&1 | tee "$output"
  status=${PIPESTATUS[0]}
  summary=$(tail -n 1 "$output")
  rm "$output"
  good=$(sed -nE 's/(.* )?([0-9]+) passed.*/\2/p' <<<"$summary")
  bad=$(sed -nE 's/(.* )?([0-9]+) failed.*/\2/p' <<<"$summary")
  errors=$(sed -nE 's/(.* )?([0-9]+) errors?.*/\2/p' <<<"$summary")
  add_counts "$status" "${good:-0}" $((${bad:-0} + ${errors:-0}))
}

finish() {
  end_part
  printf '\n%d passed, %d failed\n' "$passed" "$failed"
  [ "$failed" = 0 ]
}

clang_format() {
  local output
  output=$(git ls-files -zco --exclude-standard '*.h' '*.cc' | xargs -0 -r clang-format-19 --dry-run --Werror 2>&1) && return
  echo "These files change under clang-format-19 -i:"
  grep -oE '^[^ :]+:[0-9]+' <<<"$output" | cut -d: -f1 | sort | uniq -c
  return 1
}

ruff() {
  "${TRIREME_VENV:-.venv}/bin/ruff" "$@" python tests examples bench tools/lint scripts/shaped scripts/shaped_hosts.py
}

# What reads the sources only.
check_sources() {
  part "clang-format"
  check clang_format
  part "ruff"
  check ruff check --quiet
  check ruff format --quiet --diff
  part "tools/lint"
  check tools/lint
}
