# Of the output of `cargo test -- --show-output`: all but what passed. Of a test that passed and had data or a program missing, what it says.
/^successes:$/ { passed = 1 }
/^failures:$|^test result: / { passed = 0 }
passed ? /skipped: / : !/^test .* \.\.\. ok$/ { print; fflush() }
