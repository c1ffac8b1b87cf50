//! The walls around what a program may do: seccomp, landlock, and what other security modules say.

use std::fs;

use super::{Check, Status};
use crate::profile::{self, DEFAULT};
use crate::sandbox::host::{Facts, Lack, probe};
use crate::sandbox::seccomp;
use crate::sys;

pub fn checks() -> Vec<Check> {
    vec![filter(), landlock(), apparmor()]
}

/// The filter of the default profile, compiled and put on a process.
fn filter() -> Check {
    const NAME: &str = "seccomp";
    if !sys::seccomp::available() {
        return Check::lack(NAME, Status::Fail, &Lack::Seccomp);
    }
    let fix = format!("mend the profile default ({}/default.toml)", profile::SYSTEM_DIR);
    let choice = match profile::load(DEFAULT) {
        Ok(profile) => profile.seccomp,
        Err(e) => return Check::fail(NAME, e.to_string(), fix),
    };
    match seccomp::compile(&choice.json, &choice.name) {
        Ok(filter) => {
            let n = filter.instructions().len();
            let found = format!("the filter of the default profile ({n} instructions) can be installed");
            Check::tried(NAME, &found, Status::Fail, probe::filter(filter.instructions()))
        }
        Err(e) => Check::fail(NAME, e.to_string(), fix),
    }
}

fn landlock() -> Check {
    const NAME: &str = "landlock";
    let abi = sys::landlock::abi();
    if let Some(lack) = Lack::landlock(abi) {
        return Check::lack(NAME, Status::Fail, &lack);
    }
    let rest = if abi < 6 { " (abstract sockets and signals are held by namespaces alone)" } else { "" };
    Check::tried(NAME, &format!("ABI {abi}{rest}"), Status::Fail, probe::landlock(abi))
}

/// Whether it stands in the way is seen where namespaces are made; this says what is set.
fn apparmor() -> Check {
    const NAME: &str = "apparmor";
    let on = fs::read_to_string("/sys/module/apparmor/parameters/enabled");
    let on = on.is_ok_and(|t| t.trim() == "Y");
    Check::ok(
        NAME,
        match (on, Facts::gather().apparmor_restricts) {
            (false, _) => "not in use".to_owned(),
            (true, Some(1)) => {
                "in use, and restricts user namespaces of ordinary users without a profile".to_owned()
            }
            (true, _) => "in use, and does not restrict user namespaces".to_owned(),
        },
    )
}
