use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::time::Duration;

use super::super::request::Lang;
use super::*;

fn request(code: &str, args: Vec<OsString>) -> Request {
    Request {
        run_id: "run_0".into(),
        image: "host".into(),
        program: Program::Script { lang: Lang::Python, code: code.into(), args },
        inputs: Vec::new(),
        skills: vec![Skill { dir: "/s".into(), id: "绘图".into() }],
        stdin: Stdin::Null,
        env: BTreeMap::from([("键".to_owned(), "值".to_owned())]),
        limits: crate::profile::load("default").unwrap().limits,
        seccomp: SeccompChoice { name: "default".into(), json: "{}".into() },
        output_dir: "/out".into(),
        allow_unenforced: BTreeSet::from([LimitKind::Cpu]),
        pass_through: false,
        notes: Vec::new(),
    }
}

fn ends() -> (OwnedFd, OwnedFd) {
    channel::pair().unwrap()
}

#[test]
fn a_job_arrives_as_it_was_sent_however_large() {
    for code in ["print('汉')\n".to_owned(), "#".repeat(8 << 20)] {
        let args = vec![OsString::from("甲"), OsString::from_vec(vec![0xff])];
        let request = request(&code, args.clone());
        let job = Job::new(What::Run { stdin: true, inputs: false }, &request.run_id, &request);
        let ((a, b), (c, d)) = (ends(), ends());
        let attached =
            Attached { output: vec![a, b], stdin: Some(c), skills: vec![d], ..Attached::default() };
        let (packet, fds) = job.pack(code.as_bytes(), ends().0, attached).unwrap();
        assert!(packet.len() <= channel::LONG, "{}", packet.len());
        assert_eq!(Job::run_id_of(&packet), Some("run_0"));
        let mut fds = fds.into_iter();
        fds.next().unwrap();
        let (job, code_again, attached) = Job::unpack(&packet, &mut fds).unwrap();
        assert_eq!((attached.output.len(), attached.skills.len(), fds.len()), (2, 1, 0));
        assert!(attached.stdin.is_some() && attached.inputs.is_none() && attached.zygote.is_none());
        let again = job.into_request(code_again);
        assert_eq!(again.program, Program::Script { lang: Lang::Python, code: code.into(), args });
        assert_eq!((again.env, again.limits), (request.env, request.limits));
        assert_eq!(again.allow_unenforced, request.allow_unenforced);
        assert_eq!(again.skills[0].id, "绘图");
    }
}

#[test]
fn what_is_made_ahead_knows_nothing_of_a_run() {
    let request = request("secret", vec!["x".into()]);
    let job = Job::new(What::Started { preload: vec!["json".into()] }, "run_slot", &request);
    assert!(job.skills.is_empty());
    assert_eq!(job.run_id, "run_slot");
    assert_eq!(job.program, Program::Script { lang: Lang::Python, code: vec![], args: vec![] });
}

#[test]
fn a_job_that_lacks_a_descriptor_or_an_end_is_none() {
    let request = request("x", vec![]);
    let job = Job::new(What::Run { stdin: false, inputs: true }, "run_0", &request);
    let ((a, b), (c, d)) = (ends(), ends());
    let attached = Attached { output: vec![a, b], inputs: Some(c), skills: vec![d], ..Attached::default() };
    let (packet, mut fds) = job.pack(b"x", ends().0, attached).unwrap();
    assert!(Job::unpack(&packet[..packet.len() / 2], &mut Vec::new().into_iter()).is_none());
    fds.pop();
    let mut fds = fds.into_iter();
    fds.next();
    assert!(Job::unpack(&packet, &mut fds).is_none());
}

#[test]
fn an_answer_of_any_length_arrives() {
    for n in [1, 100_000] {
        let planned = Planned {
            enforced: BTreeMap::from([("memory".to_owned(), "cgroup2".to_owned())]),
            limits: Limits { timeout: Duration::from_millis(1500), ..request("", vec![]).limits },
            notes: vec!["注".repeat(n)],
            owner: 7,
            program: "python3".into(),
            path_env: "/bin".into(),
            env: vec![("A".into(), "b".into())],
        };
        let (a, b) = ends();
        Answer::Planned(planned.clone()).send(a.as_fd()).unwrap();
        let (packet, fds) = channel::receive(b.as_fd(), channel::LONG).unwrap();
        match Answer::of(&packet, fds).unwrap() {
            Answer::Planned(again) => assert_eq!(again, planned),
            Answer::Stopped(stop) => panic!("{stop:?}"),
        }
    }
}
