//! Promise: an ordinary user can't have a zygote, and is told so and what to do.

use crate::common::footprint::assert_state_clean;
use crate::common::user::User;

#[test]
fn is_refused_with_one_line() {
    let Some(user) = User::new() else { return };
    let ran =
        user.run(&["--allow-unenforced", "memory,pids,cpu", "--start", "zygote", "-c", "print('started')"]);
    assert!(matches!(ran.code, Some(125 | 126)) && ran.stdout.is_empty(), "{:?} {}", ran.code, ran.err());
    let err = ran.err();
    assert_eq!(err.trim_end().lines().count(), 1, "one line: {err}");
    assert!(err.contains("zygote") && err.contains("ordinary user"), "{err}");
    assert_state_clean(&user.state());
}
