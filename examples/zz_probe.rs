use creel::executor::{environment, ids, run_id::new_run_id, state::State};
use creel::sandbox::{
    cgroup, channel, disk::DiskHold, go::filter_bytes, launcher, outcome::*, role::Role, seccomp, spec::*,
    zygote,
};
use creel::sys::process::{Cloned, clone3};
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

fn spec(
    image: &str,
    slot: Option<Slot>,
    zyg: bool,
    state: &State,
    cg: &cgroup::Found,
) -> (Spec, creel::executor::state::Run) {
    let profile: toml::Value =
        toml::from_str(&std::fs::read_to_string("profiles/default.toml").unwrap()).unwrap();
    let _ = profile;
    let l = creel::limits::Limits {
        timeout: Duration::from_secs(10),
        memory: 512 << 20,
        cpu_millis: 500,
        pids: 128,
        tmp: 128 << 20,
        shm: 64 << 20,
        run: 16 << 20,
        work: 128 << 20,
        work_files: 65536,
        output: 50 << 20,
        output_files: 1000,
        output_depth: 32,
    };
    let img = creel::image::open(image, &[]).unwrap();
    let lease = ids::lease().unwrap();
    let ids = if zyg { Ids::Template { user: lease.ids.user(), root: ids::ROOT_ID } } else { lease.ids };
    let env = environment::build(&img.path_env, &img.env, &Default::default(), 500);
    let id = new_run_id().unwrap();
    let run = state.new_run(&id, cg).unwrap();
    let c = |s: &str| std::ffi::CString::new(s).unwrap();
    (
        Spec {
            run_id: id,
            role: Role::Payload,
            root: img.root,
            command: Command {
                argv: vec![c("python3"), c("/work/entry.py")],
                search: env.iter().find(|e| e.0 == "PATH").unwrap().1.split(':').map(str::to_owned).collect(),
                env: env.iter().map(|(k, v)| c(&format!("{k}={v}"))).collect(),
                cwd: c("/work"),
                nofile: 256,
            },
            cgroup_limits: cgroup::CgroupLimits {
                memory: Some(if zyg { 2 << 30 } else { l.memory }),
                pids: Some(l.pids),
                cpu_millis: (!zyg && std::env::var("NOCPU").is_err()).then_some(500),
            },
            limits: l,
            cgroup: cg.clone(),
            landlock_abi: creel::sys::landlock::abi(),
            ids,
            disk: DiskHold::Tmpfs,
            inputs: Inputs::Few(vec![("manifest.json".into(), b"[]".to_vec())]),
            slot,
            run_dir: None,
            place: run.runs.try_clone().unwrap(),
            entry: None,
            shown: vec![],
            scratch: vec![],
            stdin: None,
            output: vec![],
            held: lease.lock.into_iter().chain([run.ledger.try_clone().unwrap()]).chain(img.held).collect(),
        },
        run,
    )
}
fn memfd(b: &[u8]) -> OwnedFd {
    let f = rustix::fs::memfd_create("p", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    rustix::io::write(&f, b).unwrap();
    f
}
fn hear(c: &OwnedFd) -> (Event, Vec<OwnedFd>) {
    let (d, f) = channel::receive(c.as_fd(), 65536).unwrap();
    (serde_json::from_slice(&d).unwrap_or_else(|e| panic!("{e} {d:?}")), f)
}
fn main() {
    if std::env::args().eq(["init"]) && std::process::id() == 1 {
        creel::sandbox::init::executed()
    }
    let a: Vec<String> = std::env::args().collect();
    let (image, mode, n): (&str, &str, usize) = (&a[1], &a[2], a[3].parse().unwrap());
    let code = std::fs::read(&a[4]).unwrap();
    let pre: Vec<String> = a.get(5).map(|s| s.split(',').map(str::to_owned).collect()).unwrap_or_default();
    let state = State::open().unwrap();
    let cg = cgroup::probe();
    let filter = seccomp::compile(include_str!("../profiles/seccomp/default.json"), "default").unwrap();
    let mut go = vec![Order::Go as u8];
    go.extend(filter_bytes(filter.instructions()));
    let mut zy = None;
    if mode == "zygote" {
        let (client, server) = channel::pair().unwrap();
        let (ours, theirs) = channel::pair().unwrap();
        let (s, _run) = spec(image, None, true, &state, &cg);
        let t = Instant::now();
        match clone3(0, None).unwrap() {
            Cloned::Child => {
                drop(ours);
                drop(client);
                zygote::run_here(s, theirs, server, pre.clone(), || true)
            }
            Cloned::Parent { .. } => {}
        }
        drop(theirs);
        drop(server);
        let (e, _) = hear(&ours);
        println!("zygote {e:?} {:?}", t.elapsed());
        if !matches!(e, Event::Ready) {
            return;
        }
        zy = Some((client, ours));
    }
    for _ in 0..n {
        let t = Instant::now();
        let slot = match &zy {
            Some((c, _)) => Slot::Forked { zygote: c.try_clone().unwrap() },
            None => Slot::Started { preload: pre.clone() },
        };
        let (s, run) = spec(image, Some(slot), false, &state, &cg);
        let l = launcher::start(s).unwrap();
        channel::send(l.control.as_fd(), &go, &[]).unwrap();
        let (e, _) = hear(&l.control);
        let made = t.elapsed();
        if !matches!(e, Event::Ready) {
            println!("{e:?}");
            return;
        }
        if std::env::var("HOT").is_ok() {
            let t = Instant::now();
            channel::send(l.control.as_fd(), &[Order::Heat as u8], &[]).unwrap();
            let (e, _) = hear(&l.control);
            println!("heat {e:?} {:?}", t.elapsed());
        }
        if std::env::var("PAUSE").is_ok() {
            let mut s = String::new();
            std::io::stdin().read_line(&mut s).unwrap();
        }
        let (or, ow) = rustix::pipe::pipe().unwrap();
        let t = Instant::now();
        let parcel = Parcel {
            code: code.clone(),
            args: vec!["arg".into()],
            env: vec![b"A=\xff".to_vec(), b"PATH=/usr/bin".to_vec(), b"HOME=/work".to_vec()],
        };
        let d = Delivery { timeout_ms: 10000, stdin: false, inputs: false, skills: vec![] };
        let mut msg = vec![Order::Deliver as u8];
        msg.extend(serde_json::to_vec(&d).unwrap());
        let p = memfd(&parcel.to_bytes());
        channel::send(l.control.as_fd(), &msg, &[p.as_fd(), ow.as_fd(), ow.as_fd()]).unwrap();
        drop(ow);
        let (e1, _f) = hear(&l.control);
        let st = t.elapsed();
        let (e2, _) = if matches!(e1, Event::Started) { hear(&l.control) } else { (Event::Ready, vec![]) };
        let done = t.elapsed();
        let mut out = vec![];
        let mut b = [0; 65536];
        loop {
            let k = rustix::io::read(&or, &mut b).unwrap();
            if k == 0 {
                break;
            }
            out.extend_from_slice(&b[..k]);
        }
        println!(
            "made {made:?} started {st:?} done {done:?}\n{e1:?} {e2:?}\n{}",
            String::from_utf8_lossy(&out)
        );
        drop(l.control);
        run.remove().unwrap();
    }
}
