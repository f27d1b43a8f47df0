//! The GPUs that an engine is on, by number.

use std::fmt;
use std::str::FromStr;

use crate::error::Error;

/// GPUs by number, each once, in ascending order.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Gpus(u128);

impl Gpus {
    /// One GPU.
    ///
    /// # Panics
    /// If its number is 128 or more.
    pub const fn one(number: usize) -> Gpus {
        assert!(number < 128);
        Gpus(1 << number)
    }

    /// The first GPUs, so many.
    ///
    /// # Panics
    /// If there are none or more than 127.
    pub const fn first(count: usize) -> Gpus {
        assert!(count > 0 && count < 128);
        Gpus((1 << count) - 1)
    }

    /// How many.
    pub fn count(self) -> usize {
        self.0.count_ones() as usize
    }

    /// Their numbers.
    pub fn numbers(self) -> impl Iterator<Item = usize> {
        (0..128).filter(move |number| self.0 >> number & 1 == 1)
    }
}

impl fmt::Display for Gpus {
    /// As in `0,1`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let numbers: Vec<String> = self.numbers().map(|number| number.to_string()).collect();
        f.pad(&numbers.join(","))
    }
}

impl fmt::Debug for Gpus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Gpus({self})")
    }
}

impl FromStr for Gpus {
    type Err = Error;

    fn from_str(text: &str) -> Result<Gpus, Error> {
        let wrong = |found: String, wanted: &str| Err(Error::request("device", found, wanted.to_owned()));
        let mut all = 0u128;
        for name in text.split(',') {
            let Some(number) = name.parse::<usize>().ok().filter(|&number| number < 128) else {
                return wrong(
                    format!("GPUs \"{text}\""),
                    "cuda:N for the GPU with number N, or cuda:0,1 for several, each number below 128",
                );
            };
            if all >> number & 1 == 1 {
                return wrong(format!("GPU {number} twice"), "each GPU once, as in cuda:0,1");
            }
            all |= 1 << number;
        }
        Ok(Gpus(all))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gpus_are_read_in_any_order_and_written_in_ascending_order() {
        for (text, written, count) in [("0", "0", 1), ("3,1", "1,3", 2), ("127,0,5", "0,5,127", 3)] {
            let gpus: Gpus = text.parse().unwrap();
            assert_eq!((gpus.to_string().as_str(), gpus.count()), (written, count));
            assert_eq!(written.parse::<Gpus>().unwrap(), gpus);
        }
        assert_eq!("0,1,2".parse::<Gpus>().unwrap(), Gpus::first(3));
        assert_eq!("7".parse::<Gpus>().unwrap(), Gpus::one(7));
    }

    #[test]
    fn a_gpu_named_twice_a_range_and_what_is_no_number_are_refused() {
        let message = "1,0,1".parse::<Gpus>().unwrap_err().to_string();
        assert!(message.contains("GPU 1 twice"), "{message}");
        for text in ["", "0,", "0-3", "all", "-1", "128"] {
            let message = text.parse::<Gpus>().unwrap_err().to_string();
            assert!(message.contains("cuda:0,1"), "{message}");
        }
    }
}
