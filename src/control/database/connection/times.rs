//! Times as either database keeps them.

use sqlx::encode::IsNull;
use sqlx::error::BoxDynError;
use sqlx::postgres::types::Oid;
use sqlx::postgres::{PgArgumentBuffer, PgTypeInfo, PgValueRef};
use sqlx::sqlite::{SqliteArgumentsBuffer, SqliteTypeInfo, SqliteValueRef};
use sqlx::{Decode, Encode, Postgres, Sqlite, Type};

use crate::database::time::Time;

impl Type<Sqlite> for Time {
    fn type_info() -> SqliteTypeInfo {
        <i64 as Type<Sqlite>>::type_info()
    }

    fn compatible(info: &SqliteTypeInfo) -> bool {
        <i64 as Type<Sqlite>>::compatible(info)
    }
}

impl Encode<'_, Sqlite> for Time {
    fn encode_by_ref(&self, arguments: &mut SqliteArgumentsBuffer) -> Result<IsNull, BoxDynError> {
        <i64 as Encode<'_, Sqlite>>::encode_by_ref(&self.0, arguments)
    }
}

impl<'r> Decode<'r, Sqlite> for Time {
    fn decode(value: SqliteValueRef<'r>) -> Result<Time, BoxDynError> {
        <i64 as Decode<'r, Sqlite>>::decode(value).map(Time)
    }
}

// By hand, because the library has types of its own for timestamptz only together with a crate of times. On the wire
// it is a number: microseconds since 2000 (PostgreSQL, "Date/Time Types": 8 bytes, resolution 1 microsecond).

impl Type<Postgres> for Time {
    fn type_info() -> PgTypeInfo {
        PgTypeInfo::with_oid(TIMESTAMPTZ)
    }
}

impl Encode<'_, Postgres> for Time {
    fn encode_by_ref(&self, buffer: &mut PgArgumentBuffer) -> Result<IsNull, BoxDynError> {
        <i64 as Encode<'_, Postgres>>::encode_by_ref(&self.0.saturating_sub(SINCE_2000), buffer)
    }
}

impl<'r> Decode<'r, Postgres> for Time {
    fn decode(value: PgValueRef<'r>) -> Result<Time, BoxDynError> {
        // It saturates, because `infinity` is the largest number, and so stays about that.
        <i64 as Decode<'r, Postgres>>::decode(value).map(|micros| Time(micros.saturating_add(SINCE_2000)))
    }
}

/// PostgreSQL's epoch, 2000-01-01, in microseconds since that of Unix.
const SINCE_2000: i64 = 946_684_800_000_000;
/// The type's number, which is fixed in PostgreSQL's catalogue (`pg_type.dat`).
const TIMESTAMPTZ: Oid = Oid(1184);
