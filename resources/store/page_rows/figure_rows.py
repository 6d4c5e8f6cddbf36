"""Tables with a row for each page and a list of figures in it, as tables with a row for each figure. Pure."""

import pyarrow as pa
import pyarrow.compute as pc


def one_row_a_figure(table: pa.Table, column: str) -> pa.Table:
    """`page_id` and the fields of the structs in the lists of `column`, in their order."""
    lists = table[column].combine_chunks()
    parents = pc.call_function("list_parent_indices", [lists])
    structs = pc.call_function("list_flatten", [lists])
    kind = structs.type
    fields = [kind.field(at) for at in range(kind.num_fields)]
    values = structs.flatten() if len(structs) else [pa.array([], field.type) for field in fields]
    page_ids = table["page_id"].combine_chunks().take(parents)
    schema = pa.schema([table.schema.field("page_id"), *fields])
    return pa.Table.from_arrays([page_ids, *values], schema=schema)


def with_vector(table: pa.Table) -> pa.Table:
    """`page_id`, `index` and `vector` of the figures of FIGURE_EMBEDDINGS that have one."""
    found = one_row_a_figure(table, "figures").select(["page_id", "index", "vector"])
    return found.filter(found["vector"].is_valid())


def vector_width(schema: pa.Schema) -> int:
    """Numbers of a vector in a table of vectors, of pages or of the figures of pages."""
    if "vector" in schema.names:
        return schema.field("vector").type.list_size
    return schema.field("figures").type.value_type.field("vector").type.list_size
