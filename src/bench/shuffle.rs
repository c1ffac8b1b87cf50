//! An order that is another one in each round, and the same for the same seed.

/// xorshift64*: enough to shuffle a handful of names.
#[derive(Debug, Clone)]
pub struct Shuffle(u64);

impl Shuffle {
    pub fn new(seed: u64) -> Shuffle {
        // Zero would stay zero.
        Shuffle(seed ^ 0x9e37_79b9_7f4a_7c15 | 1)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// 0..n in some order.
    pub fn order(&mut self, n: usize) -> Vec<usize> {
        let mut order: Vec<usize> = (0..n).collect();
        for i in (1..n).rev() {
            let j = (self.next() >> 33) as usize % (i + 1);
            order.swap(i, j);
        }
        order
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_place_for_everyone() {
        let mut shuffle = Shuffle::new(7);
        let mut counts = [[0; 4]; 4];
        for _ in 0..4000 {
            for (place, who) in shuffle.order(4).into_iter().enumerate() {
                counts[who][place] += 1;
            }
        }
        assert!(counts.iter().flatten().all(|n| (800..1200).contains(n)), "{counts:?}");
        assert_eq!(Shuffle::new(7).order(9), Shuffle::new(7).order(9));
        assert_ne!(Shuffle::new(7).order(9), Shuffle::new(8).order(9));
    }
}
