"""Run by Alembic: migrates the connection that `autofuse.database.tables.migration` hands over."""

from alembic import context

from autofuse.database.tables.schema import VERSION_TABLE, Base
from autofuse.errors import DatabaseError

connection = context.config.attributes.get("connection")
if connection is None:
    raise DatabaseError("migrations run through autofuse only: open the database for writing once")

context.configure(
    connection=connection,
    target_metadata=Base.metadata,
    version_table=VERSION_TABLE,
    render_as_batch=connection.dialect.name == "sqlite",
    transactional_ddl=True,
)
with context.begin_transaction():
    context.run_migrations()
