//! Every setting: a flag, an environment variable, and what it is for. The only place that reads the environment.

use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::{Context, ensure};
use api::{ApiSettings, JwtKey, JwtSettings};
use chrono::TimeDelta;
use clap::{Args, ValueEnum};
use objects::{Credentials, S3Settings, SignerSettings, StoreKind};
use ops::setup::{SetupSettings, StoreUrl};
use store::DbSettings;
use telemetry::LogFormat;
use url::Url;

/// What the bucket sends, unless another file is named: the one beside Cargo.toml.
const NOTIFY: &str = include_str!("../../../minio-notify.json");

#[derive(Debug, Args)]
#[command(next_help_heading = "Logs")]
pub(crate) struct LogArgs {
    /// What is logged, as `tracing` filters say it: info, or debug,sqlx=warn.
    #[arg(long = "log", env = "ARKIV_LOG", default_value = "info", global = true)]
    pub(crate) filter: String,
    /// How it is logged: text for people, json for machines.
    #[arg(long = "log-format", env = "ARKIV_LOG_FORMAT", default_value = "text", global = true)]
    pub(crate) format: LogFormat,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Database")]
pub(crate) struct WorkerDatabaseArgs {
    /// The database, as the workers' role `arkiv_worker`.
    #[arg(long, env = "ARKIV_DATABASE_URL", hide_env_values = true)]
    database_url: String,
    /// Connections each role keeps at most.
    #[arg(long, env = "ARKIV_DATABASE_CONNECTIONS", default_value_t = 8, value_parser = clap::value_parser!(u32).range(2..=200))]
    database_connections: u32,
}

impl WorkerDatabaseArgs {
    pub(crate) fn settings(&self, role: &str) -> DbSettings {
        database(&self.database_url, self.database_connections, role)
    }
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Database")]
pub(crate) struct ApiDatabaseArgs {
    /// The database, as the API's role `arkiv_api`.
    #[arg(long, env = "ARKIV_API_DATABASE_URL", hide_env_values = true)]
    api_database_url: String,
    /// Connections the API keeps at most.
    #[arg(long, env = "ARKIV_API_DATABASE_CONNECTIONS", default_value_t = 16, value_parser = clap::value_parser!(u32).range(2..=200))]
    api_database_connections: u32,
}

impl ApiDatabaseArgs {
    pub(crate) fn settings(&self) -> DbSettings {
        database(&self.api_database_url, self.api_database_connections, "api")
    }
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Database")]
pub(crate) struct OwnerDatabaseArgs {
    /// The database, as the owner of the schema.
    #[arg(long, env = "ARKIV_OWNER_DATABASE_URL", hide_env_values = true)]
    pub(crate) owner_database_url: String,
}

fn database(url: &str, connections_max: u32, role: &str) -> DbSettings {
    DbSettings { url: url.to_owned(), connections_max, name: format!("arkiv {role}") }
}

#[derive(Debug, Args)]
#[expect(clippy::struct_field_names, reason = "clap names flags after fields")]
#[command(next_help_heading = "Store")]
pub(crate) struct BucketArgs {
    /// Where the store answers our processes.
    #[arg(long, env = "ARKIV_S3_ENDPOINT")]
    s3_endpoint: Url,
    /// The region that goes into signatures.
    #[arg(long, env = "ARKIV_S3_REGION", default_value = "us-east-1")]
    s3_region: String,
    /// The bucket.
    #[arg(long, env = "ARKIV_S3_BUCKET", default_value = "arkiv")]
    s3_bucket: String,
    /// Which store it is: ceph, minio, rustfs or aws.
    #[arg(long, env = "ARKIV_S3_KIND", default_value = "minio")]
    s3_kind: StoreKind,
}

impl BucketArgs {
    pub(crate) fn bucket(&self) -> &str {
        &self.s3_bucket
    }

    fn reached_as(&self, access_key: &str, secret_key: &str) -> S3Settings {
        S3Settings {
            endpoint: self.s3_endpoint.clone(),
            region: self.s3_region.clone(),
            bucket: self.s3_bucket.clone(),
            credentials: Credentials::new(access_key, secret_key),
            kind: self.s3_kind,
        }
    }

    fn signed_as(&self, public: Option<&Url>, access_key: &str, secret_key: &str) -> SignerSettings {
        SignerSettings {
            endpoint: public.unwrap_or(&self.s3_endpoint).clone(),
            region: self.s3_region.clone(),
            bucket: self.s3_bucket.clone(),
            credentials: Credentials::new(access_key, secret_key),
        }
    }
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Store")]
pub(crate) struct StoreArgs {
    #[command(flatten)]
    pub(crate) bucket: BucketArgs,
    /// The workers' access key.
    #[arg(long, env = "ARKIV_S3_WORKER_ACCESS_KEY")]
    s3_worker_access_key: String,
    /// The workers' secret key.
    #[arg(long, env = "ARKIV_S3_WORKER_SECRET_KEY", hide_env_values = true)]
    s3_worker_secret_key: String,
}

impl StoreArgs {
    pub(crate) fn settings(&self) -> S3Settings {
        self.bucket.reached_as(&self.s3_worker_access_key, &self.s3_worker_secret_key)
    }
}

#[derive(Debug, Args)]
#[expect(clippy::struct_field_names, reason = "clap names flags after fields")]
#[command(next_help_heading = "Store")]
pub(crate) struct SignerArgs {
    /// Where the store answers browsers, if not at the endpoint.
    #[arg(long, env = "ARKIV_S3_PUBLIC_ENDPOINT")]
    s3_public_endpoint: Option<Url>,
    /// The access key that signs tickets: it may only put under incoming/.
    #[arg(long, env = "ARKIV_S3_SIGNER_ACCESS_KEY")]
    s3_signer_access_key: String,
    /// Its secret key.
    #[arg(long, env = "ARKIV_S3_SIGNER_SECRET_KEY", hide_env_values = true)]
    s3_signer_secret_key: String,
    /// The access key that signs links: it may only get (setup only names it in the policy).
    #[arg(long, env = "ARKIV_S3_READER_ACCESS_KEY")]
    s3_reader_access_key: String,
    /// Its secret key.
    #[arg(long, env = "ARKIV_S3_READER_SECRET_KEY", hide_env_values = true)]
    s3_reader_secret_key: String,
}

impl SignerArgs {
    pub(crate) fn tickets(&self, bucket: &BucketArgs) -> SignerSettings {
        let public = self.s3_public_endpoint.as_ref();
        bucket.signed_as(public, &self.s3_signer_access_key, &self.s3_signer_secret_key)
    }

    pub(crate) fn links(&self, bucket: &BucketArgs) -> SignerSettings {
        let public = self.s3_public_endpoint.as_ref();
        bucket.signed_as(public, &self.s3_reader_access_key, &self.s3_reader_secret_key)
    }
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Broker")]
pub(crate) struct BrokerArgs {
    /// The broker: amqp://user:password@host:port/vhost.
    #[arg(long, env = "ARKIV_AMQP_URL", hide_env_values = true)]
    amqp_url: String,
    /// Stands before every exchange and queue name.
    #[arg(long, env = "ARKIV_AMQP_PREFIX", default_value = "")]
    amqp_prefix: String,
}

impl BrokerArgs {
    pub(crate) fn settings(&self, role: &str) -> broker::Settings {
        broker::Settings {
            url: self.amqp_url.clone(),
            prefix: self.amqp_prefix.clone(),
            name: format!("arkiv {role}"),
        }
    }
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Relay")]
pub(crate) struct RelayArgs {
    /// Outbox rows published in one batch at most.
    #[arg(long, env = "ARKIV_RELAY_BATCH", default_value_t = 500, value_parser = clap::value_parser!(u16).range(1..=2000))]
    relay_batch: u16,
}

impl RelayArgs {
    pub(crate) fn settings(&self) -> relay::RelaySettings {
        relay::RelaySettings { batch_rows_max: self.relay_batch, ..relay::RelaySettings::default() }
    }
}

/// What derivatives are encoded as.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum DerivativeFormat {
    /// WebP.
    Webp,
    /// JPEG.
    Jpeg,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Decoder")]
pub(crate) struct DecoderArgs {
    /// Files decoded at once; as many as there are cores unless set.
    #[arg(long, env = "ARKIV_DECODERS", value_parser = clap::value_parser!(u16).range(1..=64))]
    decoders: Option<u16>,
    /// What thumbnails and previews are encoded as.
    #[arg(long, env = "ARKIV_DERIVATIVE_FORMAT", value_enum, default_value = "webp")]
    derivative_format: DerivativeFormat,
}

impl DecoderArgs {
    pub(crate) fn parallel(&self) -> u16 {
        let cores = std::thread::available_parallelism().map_or(2, std::num::NonZero::get);
        self.decoders.unwrap_or_else(|| u16::try_from(cores).unwrap_or(64).min(64))
    }

    pub(crate) fn options(&self) -> decoder::pipeline::Options {
        decoder::pipeline::Options {
            derivative_format: match self.derivative_format {
                DerivativeFormat::Webp => decoder::pipeline::DerivativeFormat::Webp,
                DerivativeFormat::Jpeg => decoder::pipeline::DerivativeFormat::Jpeg,
            },
            ..decoder::pipeline::Options::default()
        }
    }
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Health")]
pub(crate) struct HealthArgs {
    /// Where this role answers /livez, /readyz and /metrics; nowhere unless set.
    #[arg(long, env = "ARKIV_HEALTH_LISTEN")]
    pub(crate) health_listen: Option<SocketAddr>,
}

/// Production, or a developer's machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum RunMode {
    /// No token issuer.
    Production,
    /// `POST /dev/token` gives anybody a token; only on a loopback listener.
    Development,
}

/// Whether PUT tickets are given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum PutTickets {
    /// As the probe at start says: only where the store heeds what is signed and nothing else (R-A2).
    Auto,
    /// Never.
    Off,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "API")]
pub(crate) struct ApiArgs {
    /// Where the API listens.
    #[arg(long, env = "ARKIV_LISTEN", default_value = "127.0.0.1:8080")]
    listen: SocketAddr,
    /// How clients reach it; its path, if any, goes before every link.
    #[arg(long, env = "ARKIV_PUBLIC_URL")]
    public_url: Option<Url>,
    /// development opens a token issuer on loopback.
    #[arg(long, env = "ARKIV_MODE", value_enum, default_value = "production")]
    mode: RunMode,
    /// The secret that HS256 tokens are signed with, at least 32 bytes.
    #[arg(long, env = "ARKIV_JWT_HS256_SECRET", hide_env_values = true, conflicts_with = "jwt_jwks_file")]
    jwt_hs256_secret: Option<String>,
    /// A file with the JWK set that tokens are checked with.
    #[arg(long, env = "ARKIV_JWT_JWKS_FILE")]
    jwt_jwks_file: Option<PathBuf>,
    /// The `iss` of tokens.
    #[arg(long, env = "ARKIV_JWT_ISSUER")]
    jwt_issuer: String,
    /// The `aud` of tokens.
    #[arg(long, env = "ARKIV_JWT_AUDIENCE", default_value = "arkiv")]
    jwt_audience: String,
    /// How long a ticket lives, in seconds.
    #[arg(long, env = "ARKIV_TICKET_SECONDS", default_value_t = 600, value_parser = clap::value_parser!(u32).range(60..=3600))]
    ticket_seconds: u32,
    /// Largest upload, in bytes: 10 MiB at most.
    #[arg(long, env = "ARKIV_SIZE_BYTES_MAX", default_value_t = cards::size::OBJECT_BYTES_MAX, value_parser = clap::value_parser!(u64).range(1..=cards::size::OBJECT_BYTES_MAX))]
    size_bytes_max: u64,
    /// Take GIF in as well.
    #[arg(long, env = "ARKIV_ALLOW_GIF", default_value_t = false)]
    allow_gif: bool,
    /// Whether PUT tickets are given.
    #[arg(long, env = "ARKIV_PUT_TICKETS", value_enum, default_value = "auto")]
    pub(crate) put_tickets: PutTickets,
    /// Origins whose pages may call the API, separated by commas.
    #[arg(long, env = "ARKIV_CORS_ORIGINS", value_delimiter = ',')]
    cors_origins: Vec<String>,
}

impl ApiArgs {
    pub(crate) fn settings(&self, put_tickets: bool) -> anyhow::Result<ApiSettings> {
        let key = match (&self.jwt_hs256_secret, &self.jwt_jwks_file) {
            (Some(secret), None) => {
                // RFC 7518, 3.2: a key as long as the hash.
                ensure!(secret.len() >= 32, "ARKIV_JWT_HS256_SECRET has fewer than 32 bytes");
                JwtKey::Hs256(secret.clone().into_bytes())
            }
            (None, Some(file)) => JwtKey::JwksFile(file.clone()),
            _ => anyhow::bail!("set exactly one of ARKIV_JWT_HS256_SECRET and ARKIV_JWT_JWKS_FILE"),
        };
        Ok(ApiSettings {
            listen: self.listen,
            public_url: self.public_url.clone(),
            ticket_life: TimeDelta::seconds(i64::from(self.ticket_seconds)),
            allow_gif: self.allow_gif,
            put_tickets,
            size_bytes_max: self.size_bytes_max,
            cors_origins: self.cors_origins.clone(),
            jwt: JwtSettings { key, issuer: self.jwt_issuer.clone(), audience: self.jwt_audience.clone() },
            development: self.mode == RunMode::Development,
        })
    }
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Setup")]
pub(crate) struct SetupArgs {
    #[command(flatten)]
    bucket: BucketArgs,
    #[command(flatten)]
    signer: SignerArgs,
    /// The access key that owns the bucket.
    #[arg(long, env = "ARKIV_S3_ADMIN_ACCESS_KEY")]
    s3_admin_access_key: String,
    /// Its secret key.
    #[arg(long, env = "ARKIV_S3_ADMIN_SECRET_KEY", hide_env_values = true)]
    s3_admin_secret_key: String,
    /// The workers, as policies name them.
    #[arg(long, env = "ARKIV_S3_WORKER_PRINCIPAL")]
    s3_worker_principal: String,
    /// The signer of tickets, as policies name it.
    #[arg(long, env = "ARKIV_S3_SIGNER_PRINCIPAL")]
    s3_signer_principal: String,
    /// The signer of links, as policies name it.
    #[arg(long, env = "ARKIV_S3_READER_PRINCIPAL")]
    s3_reader_principal: String,
    /// The broker as the store reaches it, with the store's own user. Only Ceph is told; others have it in their own
    /// settings.
    #[arg(long, env = "ARKIV_AMQP_STORE_URL", default_value = "", hide_env_values = true)]
    amqp_store_url: String,
    /// Which events the bucket sends: a file like minio-notify.json, which is built in.
    #[arg(long, env = "ARKIV_NOTIFY_FILE")]
    notify_file: Option<PathBuf>,
    /// Origins whose pages may upload, separated by commas; no page unless set.
    #[arg(long, env = "ARKIV_CORS_ORIGINS", value_delimiter = ',')]
    cors_origins: Vec<String>,
}

impl SetupArgs {
    pub(crate) fn settings(&self, broker: broker::Settings) -> anyhow::Result<SetupSettings> {
        let notify = match &self.notify_file {
            Some(file) => {
                std::fs::read_to_string(file).with_context(|| format!("reading {}", file.display()))?
            }
            None => NOTIFY.to_owned(),
        };
        Ok(SetupSettings {
            store: self.bucket.reached_as(&self.s3_admin_access_key, &self.s3_admin_secret_key),
            signer: self.signer.tickets(&self.bucket),
            principals: objects::admin::Principals {
                signer: self.s3_signer_principal.clone(),
                reader: self.s3_reader_principal.clone(),
                worker: self.s3_worker_principal.clone(),
            },
            notify: objects::notify::NotifySpec::parse(&notify)?,
            broker,
            amqp_store_url: StoreUrl(self.amqp_store_url.clone()),
            cors_origins: self.cors_origins.clone(),
        })
    }
}
