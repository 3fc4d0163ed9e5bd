"""Alembic's environment, the same for every service; services.common.migrations calls it."""

from alembic import context

connection = context.config.attributes["connection"]
context.configure(
    connection=connection,
    version_table_schema=context.config.attributes["schema"],
    transaction_per_migration=True,
)
with context.begin_transaction():
    context.run_migrations()
