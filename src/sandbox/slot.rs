//! A slot: a sandbox that is made ahead, whose Python waits for a program. The launcher's side of it.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use rustix::mount::MountAttrFlags;
use rustix::pipe::{PipeFlags, pipe_with};

use super::cgroup::Group;
use super::channel::{self, Packet};
use super::mounts::{attach_at, new_fs};
use super::outcome::{Delivery, Parcel};
use super::run_dirs::{open_dir, reopened_below, show, write_file};
use super::slot_check::{Member, check_idle};
use super::spec::Spec;
use super::template::{StepError, step};
use crate::sys::mount::{MountAttr, set_attr};

/// What a waiting Python and a zygote run before anything else.
const WAIT: &str = include_str!("../../rootfs/zygote/sitecustomize.py");
/// Where they see it: descriptor 4. `site` imports `sitecustomize` from the path (Python's documentation of the module site).
const PATH: &str = "/proc/self/fd/4";
/// Time for answers that take no work.
pub const ANSWER_WITHIN: Duration = Duration::from_secs(30);

/// A Python that is to wait, before the process that becomes it is cloned.
pub struct Python {
    socket: OwnedFd,
    /// What it says on its streams before it has the program's.
    said: OwnedFd,
    theirs: Vec<OwnedFd>,
}

impl Python {
    /// Makes its two descriptors and the changes to the environment it is started with.
    pub fn prepare(spec: &mut Spec, preload: &[String]) -> Result<Python, StepError> {
        let (socket, end) = step("make a socket", channel::pair())?;
        step("ask for senders", channel::tell_senders(socket.as_fd()))?;
        let text = ["started"].into_iter().chain(preload.iter().map(String::as_str));
        let text = text.collect::<Vec<_>>().join("\n");
        step("tell the slot what to import", channel::send(socket.as_fd(), text.as_bytes(), &[]))?;
        let (said, says) = step("make a pipe", pipe_with(PipeFlags::CLOEXEC))?;
        step("make a pipe", rustix::fs::fcntl_setfl(&said, OFlags::NONBLOCK))?;
        spec.output = vec![step("duplicate a descriptor", says.try_clone())?, says];
        Ok(Python { socket, said, theirs: vec![end, waiting_room(spec)?] })
    }

    /// Descriptors 3 and 4 of the process.
    pub fn theirs(&mut self) -> Vec<OwnedFd> {
        std::mem::take(&mut self.theirs)
    }

    /// The launcher's side, once `init` is PID 1 of the slot.
    pub fn ours(self, init: i32, showing: Option<Showing>) -> Waiting {
        Waiting::new(self.socket, Some(self.said), init, showing)
    }
}

/// A directory with the file that makes a Python wait, and its place in the environment of the command.
pub fn waiting_room(spec: &mut Spec) -> Result<OwnedFd, StepError> {
    let options = [("size", Some("256k")), ("nr_inodes", Some("4")), ("mode", Some("0755"))];
    let attrs = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
    let tree = step("make the waiting room", new_fs("tmpfs", &options, attrs))?;
    let dir = step("open the waiting room", open_dir(tree.as_fd(), "."))?;
    let written = write_file(dir.as_fd(), "sitecustomize.py", WAIT.as_bytes(), 0o444, None);
    step("fill the waiting room", written)?;
    let attrs = MountAttr { read_only: true, no_suid: true, no_dev: true, no_exec: true };
    step("close the waiting room", set_attr(tree.as_fd(), false, attrs))?;
    let env = &mut spec.command.env;
    let old = env.iter().position(|e| e.as_bytes().starts_with(b"PYTHONPATH=")).map(|at| env.remove(at));
    let rest = old.map_or(Vec::new(), |e| [b":", &e.as_bytes()[b"PYTHONPATH=".len()..]].concat());
    let path = [b"PYTHONPATH=", PATH.as_bytes(), &rest].concat();
    env.push(step("write the environment", CString::new(path).map_err(io::Error::from))?);
    Ok(dir)
}

/// A Python that waits or will.
pub struct Waiting {
    socket: OwnedFd,
    said: Option<OwnedFd>,
    init: i32,
    /// Its host pid, once it is known.
    payload: std::cell::Cell<Option<i32>>,
    showing: Option<Showing>,
}

/// What is needed to show directories in a sandbox that lives already, in the launcher's mount namespace.
pub struct Showing {
    /// An empty directory of the template.
    pub empty: OwnedFd,
    /// What the template is mounted over: directories of runs lie below it.
    pub place: OwnedFd,
}

impl Waiting {
    /// `showing`: none if the template could not be made.
    pub fn new(socket: OwnedFd, said: Option<OwnedFd>, init: i32, showing: Option<Showing>) -> Waiting {
        Waiting { socket, said, init, payload: std::cell::Cell::new(None), showing }
    }

    pub fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// The end of what it said before it was given a program: why it ended, if it did.
    pub fn said(&self) -> String {
        let mut text = [0; 4096];
        let n = self.said.as_ref().and_then(|fd| rustix::io::read(fd, &mut text).ok()).unwrap_or(0);
        let text = String::from_utf8_lossy(&text[..n]);
        text.trim_end().lines().next_back().unwrap_or("").to_owned()
    }

    /// Takes the next word of it. `Ok(true)`: it waits for a delivery and is what it should be; `Ok(false)`: it has closed its end.
    pub fn hear(&self, spec: &Spec, group: &Group) -> Result<bool, StepError> {
        let packet = step(
            "hear from the slot",
            channel::receive_within(self.socket(), channel::SHORT, ANSWER_WITHIN),
        )?;
        if packet.data.is_empty() {
            return Ok(false);
        }
        self.payload.set(Some(ready(&packet)?));
        self.check(spec, group)?;
        Ok(true)
    }

    /// See [`Order::Heat`](super::outcome::Order).
    pub fn heat(&self) {
        // A slot that is gone is noticed where it is listened to.
        let _ = channel::send(self.socket(), b"heat", &[]);
    }

    /// Hands the program over. Gives how long it may run, and whether no path of the host shows inside.
    pub fn deliver(
        &self,
        spec: &Spec,
        group: &Group,
        work: BorrowedFd<'_>,
        delivery: &[u8],
        fds: Vec<OwnedFd>,
    ) -> Result<(Duration, bool), StepError> {
        let short = || StepError { step: "read the delivery".into(), errno: libc::EBADMSG };
        let delivery: Delivery = serde_json::from_slice(delivery).map_err(|_| short())?;
        // It has waited for a while, and the host is not ours alone.
        self.check(spec, group)?;
        let mut fds = fds.into_iter();
        let mut next = || fds.next().ok_or_else(short);
        let mut to_python = vec![next()?, next()?, next()?];
        if delivery.stdin {
            to_python.push(next()?);
        }
        let inputs = delivery.inputs.then(&mut next).transpose()?;
        let skills = delivery.skills.iter().map(|id| Ok((id.as_str(), next()?)));
        let skills = skills.collect::<Result<Vec<_>, _>>()?;
        let parcel = step("read the parcel", read_whole(to_python[0].as_fd()))?;
        let parcel = Parcel::from_bytes(&parcel).ok_or_else(short)?;
        let owner = spec.ids.owner();
        let entry = write_file(work, "entry.py", &parcel.code, 0o644, owner);
        step("write the program", entry)?;
        let hidden = self.show(spec, inputs, &skills)?;
        for stream in &to_python[1..] {
            step("give the streams to the sandbox", super::run_dirs::give(stream.as_fd(), owner))?;
        }
        let given: Vec<BorrowedFd<'_>> = to_python.iter().map(AsFd::as_fd).collect();
        step("hand the program over", channel::send(self.socket(), b"run", &given))?;
        Ok((Duration::from_millis(delivery.timeout_ms), hidden))
    }

    /// Moves inputs and skills into the live sandbox. Whether no path of the host shows inside.
    fn show(
        &self,
        spec: &Spec,
        inputs: Option<OwnedFd>,
        skills: &[(&str, OwnedFd)],
    ) -> Result<bool, StepError> {
        let Some(Showing { empty, place }) = &self.showing else {
            return Err(StepError { step: "show anything in the slot".into(), errno: libc::ENOENT });
        };
        let (mut trees, mut hidden) = (Vec::new(), true);
        let mut tree = |source: &OwnedFd, target: String| -> Result<(), StepError> {
            let source = reopened_below(source.as_fd(), place.as_fd());
            let source = step(format!("open the source of {target}"), source)?;
            let shown = show(source.as_fd(), empty.as_fd(), spec.ids);
            let (tree, no_path) = step(format!("show {target}"), shown)?;
            hidden &= no_path;
            trees.push((tree, target));
            Ok(())
        };
        if let Some(dir) = &inputs {
            tree(dir, "/inputs".into())?;
        }
        for (id, dir) in skills {
            tree(dir, format!("/skill/{id}"))?;
        }
        if !skills.is_empty() {
            // The slot's root has no places for skills that were not known when it was made: a directory of ours has.
            trees.insert(0, (step("make the place for skills", shelf(skills))?, "/skill".into()));
        }
        if !trees.is_empty() {
            self.inside(|root| {
                trees.iter().try_for_each(|(tree, target)| {
                    step(format!("attach {target}"), attach_at(tree.as_fd(), root, target))
                })
            })?;
        }
        Ok(hidden)
    }

    /// Does something in the slot's mount namespace and comes back. No program of a user's runs there yet, and none of its processes can see this one.
    fn inside(&self, work: impl FnOnce(BorrowedFd<'_>) -> Result<(), StepError>) -> Result<(), StepError> {
        // The Python's: it was found to be init's, which an ordinary user may not open.
        let payload = step("find the waiting Python", self.payload.get().ok_or(io::ErrorKind::NotFound))?;
        let namespace = |pid: &str| {
            let flags = OFlags::RDONLY | OFlags::CLOEXEC;
            rustix::fs::open(format!("/proc/{pid}/ns/mnt"), flags, Mode::empty())
        };
        let own = step("open the mount namespace", namespace("self"))?;
        let theirs = step("open the slot's mount namespace", namespace(&payload.to_string()))?;
        let enter = |to: &OwnedFd| rustix::thread::move_into_link_name_space(to.as_fd(), None);
        step("enter the slot's mount namespace", enter(&theirs))?;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = step("open the slot's root", rustix::fs::open("/", flags, Mode::empty()));
        let done = root.and_then(|root| work(root.as_fd()));
        // A launcher that can't come back is of no use to anybody: everything ends with it.
        let back = step("come back from the slot's mount namespace", enter(&own));
        done.and(back)
    }

    fn check(&self, spec: &Spec, group: &Group) -> Result<(), StepError> {
        let Some(payload) = self.payload.get() else {
            return Err(StepError { step: "find the waiting Python".into(), errno: libc::ESRCH });
        };
        check_idle(spec, group, Member { init: self.init, payload })
            .map_err(|what| StepError { step: format!("use the slot: {what}"), errno: libc::EPERM })
    }
}

/// The sender of the word `ready`, or what the Python says went wrong.
pub fn ready(packet: &Packet) -> Result<i32, StepError> {
    if packet.data == b"ready" {
        return packet.sender.ok_or(StepError { step: "learn who is ready".into(), errno: libc::EPROTO });
    }
    Err(complaint(&packet.data))
}

/// `e`, an errno, a space, what failed: as the Python side says it.
pub fn complaint(data: &[u8]) -> StepError {
    let text = String::from_utf8_lossy(data);
    let parts = text.strip_prefix('e').and_then(|t| t.split_once(' '));
    match parts.and_then(|(errno, what)| Some((errno.parse::<i32>().ok()?, what))) {
        Some((errno, what)) => {
            StepError { step: what.to_owned(), errno: if errno == 0 { libc::ECHILD } else { errno } }
        }
        None => StepError { step: "understand the waiting Python".into(), errno: libc::EPROTO },
    }
}

/// A read-only directory with a place for each skill.
fn shelf(skills: &[(&str, OwnedFd)]) -> io::Result<OwnedFd> {
    let options = [("size", Some("64k")), ("nr_inodes", Some("512")), ("mode", Some("0755"))];
    let attrs = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
    let tree = new_fs("tmpfs", &options, attrs)?;
    for (id, _) in skills {
        rustix::fs::mkdirat(&tree, *id, Mode::from_raw_mode(0o755))?;
    }
    set_attr(
        tree.as_fd(),
        false,
        MountAttr { read_only: true, no_suid: true, no_dev: true, no_exec: false },
    )?;
    Ok(tree)
}

fn read_whole(file: BorrowedFd<'_>) -> io::Result<Vec<u8>> {
    let size = rustix::fs::fstat(file)?.st_size as usize;
    let mut bytes = vec![0; size];
    let mut done = 0;
    while done < size {
        match rustix::io::pread(file, &mut bytes[done..], done as u64)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            n => done += n,
        }
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_complaint_is_understood() {
        let e = complaint("e2 cannot import 熊猫: No module named '熊猫'".as_bytes());
        assert_eq!((e.errno, e.step.as_str()), (2, "cannot import 熊猫: No module named '熊猫'"));
        assert_eq!(complaint(b"nonsense").errno, libc::EPROTO);
    }
}
