//! Processes below the spawner, and killing them by pid.

use std::fs;

use rustix::process::Signal;

use crate::common::footprint::{children, command_line, tree};
use crate::common::kill;
use crate::plan::{Dice, Victim};

/// Ids of runs and slots are in titles and in the names of cgroups.
fn id_in(text: &str) -> Option<String> {
    let at = text.find("run_")?;
    let id: String = text[at..].chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect();
    (id.len() == 36).then_some(id)
}

/// The sandbox that a process is in.
pub fn sandbox_of(pid: u32) -> Option<String> {
    id_in(&fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?)
}

fn comm(pid: u32) -> String {
    fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default().trim_end().to_owned()
}

/// Kills a process of the run `n`, which holds (see `HOLD`). False: nothing of it was found.
pub fn strike_run(spawner: u32, n: u64, victim: Victim) -> bool {
    let all = tree(spawner);
    let name = format!("soak-{n}");
    let Some(payload) = all.iter().copied().find(|pid| comm(*pid) == name) else { return false };
    let Some(id) = sandbox_of(payload) else { return false };
    let found = match victim {
        Victim::Payload => Some(payload),
        Victim::Launcher => children(spawner).into_iter().find(|pid| command_line(*pid).contains(&id)),
        // The PID 1 of the payload's pid namespace.
        Victim::Init => all.iter().copied().find(|pid| {
            let same = |what: &str| {
                let link = |pid: u32| fs::read_link(format!("/proc/{pid}/ns/{what}")).ok();
                link(*pid).is_some() && link(*pid) == link(payload)
            };
            same("pid") && inner_pid(*pid) == Some(1)
        }),
    };
    found.is_some_and(|pid| {
        kill(pid, Signal::KILL);
        true
    })
}

/// Its pid in its own pid namespace.
fn inner_pid(pid: u32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    status.lines().find(|l| l.starts_with("NSpid:"))?.split_whitespace().next_back()?.parse().ok()
}

/// Kills some process of a slot or a zygote, as it comes; `busy`: run ids that are nobody's slot. Says what it was.
pub fn stray(spawner: u32, busy: &[String], dice: &mut Dice) -> Option<&'static str> {
    let leaders = children(spawner);
    let (zygotes, slots): (Vec<u32>, Vec<u32>) = leaders
        .into_iter()
        .filter(|pid| id_in(&command_line(*pid)).is_some_and(|id| !busy.contains(&id)))
        .partition(|pid| command_line(*pid).starts_with("creel-zygote"));
    let choice = dice.below(8);
    let (what, pid) = match choice {
        0 => ("zygote's launcher", *dice.of(some(&zygotes)?)),
        1 => ("zygote", *children(*dice.of(some(&zygotes)?)).first()?),
        _ => {
            let launcher = *dice.of(some(&slots)?);
            let id = id_in(&command_line(launcher))?;
            let mut inside: Vec<u32> =
                tree(spawner).into_iter().filter(|pid| sandbox_of(*pid).as_ref() == Some(&id)).collect();
            inside.sort_by_key(|pid| inner_pid(*pid));
            match choice {
                2 | 3 => ("slot's launcher", launcher),
                4 | 5 => ("slot's init", *inside.iter().find(|pid| inner_pid(**pid) == Some(1))?),
                _ => ("slot's Python", *inside.iter().find(|pid| inner_pid(**pid) != Some(1))?),
            }
        }
    };
    kill(pid, Signal::KILL);
    Some(what)
}

fn some(list: &[u32]) -> Option<&[u32]> {
    (!list.is_empty()).then_some(list)
}
