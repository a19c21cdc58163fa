//! A disk without memory, to measure the code above it.

use std::io;

use oncewire_store::Backend;

/// Takes everything.
pub(crate) struct Nothing;

impl Backend for Nothing {
    fn create(&self, _: &str, _: u64) -> io::Result<()> {
        Ok(())
    }

    fn read(&self, _: &str, _: u64, _: &mut [u8]) -> io::Result<()> {
        Err(io::ErrorKind::NotFound.into())
    }

    fn write(&self, _: &str, _: u64, _: &[u8]) -> io::Result<()> {
        Ok(())
    }

    fn truncate(&self, _: &str, _: u64) -> io::Result<()> {
        Ok(())
    }

    fn sync(&self, _: &str) -> io::Result<()> {
        Ok(())
    }

    fn rename(&self, _: &str, _: &str) -> io::Result<()> {
        Ok(())
    }

    fn remove(&self, _: &str) -> io::Result<()> {
        Ok(())
    }

    fn list(&self) -> io::Result<Vec<(String, u64)>> {
        Ok(Vec::new())
    }
}
