//! Both halves together.

mod bounds;
mod density;
mod fetch;
mod holes;
mod model;
mod noise;
mod quotas;
mod returns;
mod short_names;
mod start;
mod verify;
