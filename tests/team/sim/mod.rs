//! A whole team in simulated time: every machine, driven through days of work by seeds.

mod stack;
