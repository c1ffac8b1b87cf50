//! What run number n does: the same for the same seed.

use std::time::Duration;

use crate::kinds::{HOLD, KINDS, Kind};

/// How a run is to start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    Zygote,
    Warm,
    Cold,
}

impl Mode {
    pub const ALL: [Mode; 3] = [Mode::Zygote, Mode::Warm, Mode::Cold];

    pub fn name(self) -> &'static str {
        match self {
            Mode::Zygote => "zygote",
            Mode::Warm => "warm",
            Mode::Cold => "cold",
        }
    }
}

/// Who of a run's own processes is killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Victim {
    Launcher,
    Init,
    Payload,
}

impl Victim {
    pub fn name(self) -> &'static str {
        match self {
            Victim::Launcher => "its launcher killed",
            Victim::Init => "its init killed",
            Victim::Payload => "its program killed",
        }
    }
}

pub struct Planned {
    pub kind: &'static Kind,
    pub mode: Mode,
    /// So long after it was submitted.
    pub cancel: Option<Duration>,
    /// When it says that it is on.
    pub strike: Option<Victim>,
}

/// splitmix64: a number for each number.
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64, stream: u64) -> Dice {
        let mut dice = Dice(seed ^ stream.wrapping_mul(0xd6e8_feb8_6659_fd93));
        dice.next();
        dice
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// 0..n.
    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n.max(1)
    }

    pub fn of<'a, T>(&mut self, list: &'a [T]) -> &'a T {
        &list[self.below(list.len() as u64) as usize]
    }
}

/// What run `n` does.
pub fn plan(seed: u64, n: u64) -> Planned {
    let mut dice = Dice::new(seed, n + 1);
    let mode = *dice.of(&Mode::ALL);
    if dice.below(8) == 0 {
        let strike = *dice.of(&[Victim::Launcher, Victim::Init, Victim::Payload]);
        return Planned { kind: &HOLD, mode, cancel: None, strike: Some(strike) };
    }
    let kind = dice.of(KINDS);
    let cancel = (dice.below(6) == 0).then(|| Duration::from_millis(dice.below(400)));
    Planned { kind, mode, cancel, strike: None }
}
