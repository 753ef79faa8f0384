# Hides the tests that passed in the output of `cargo test -- --show-output`, except what they skipped.
/^successes:$/ { passed = 1 }
/^failures:$|^test result: / { passed = 0 }
passed ? /skipped: / : !/^test .* \.\.\. ok$/ { print; fflush() }
