"""Run by Alembic: migrates the connection that `autofuse.profiling.migration` hands over."""

from alembic import context

from autofuse.errors import DatabaseError
from autofuse.profiling.schema import VERSION_TABLE, Base

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
