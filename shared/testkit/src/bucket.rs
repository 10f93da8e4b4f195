//! A bucket per test. `arkiv setup` makes it; this names it and removes it.

use cards::Ids;
use objects::admin::Admin;
use objects::{Credentials, S3Settings};

use crate::Env;

/// The name of a bucket of its own, removed with all it holds when this value goes.
#[derive(Debug)]
pub struct TestBucket {
    /// Its name.
    pub name: String,
}

impl TestBucket {
    /// A new name; the bucket is not made yet.
    pub fn new() -> Self {
        Self { name: format!("t-{}", Ids.message().0.simple()) }
    }

    /// How an identity (`ADMIN`, `WORKER`, `SIGNER`, `READER`) reaches it.
    pub fn settings(&self, identity: &str) -> S3Settings {
        let env = Env::get();
        S3Settings {
            endpoint: env.value("ARKIV_S3_ENDPOINT").parse().expect("the store's URL"),
            region: env.value("ARKIV_S3_REGION").to_owned(),
            bucket: self.name.clone(),
            credentials: Credentials::new(
                env.value(&format!("ARKIV_S3_{identity}_ACCESS_KEY")),
                env.value(&format!("ARKIV_S3_{identity}_SECRET_KEY")),
            ),
            kind: env.value("ARKIV_S3_KIND").parse().expect("a known kind of store"),
        }
    }
}

impl Default for TestBucket {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for TestBucket {
    fn drop(&mut self) {
        let settings = self.settings("ADMIN");
        let remover = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            if let (Ok(runtime), Ok(admin)) = (runtime, Admin::new(settings)) {
                // A bucket that was never made is as gone as one that was removed.
                let _ = runtime.block_on(admin.delete_bucket_and_all());
            }
        });
        let _ = remover.join();
    }
}
