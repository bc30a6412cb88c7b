// SQL over databases in a granted directory: SQLite itself, inside the sandbox.
#include "tools.h"

#define DATABASE                                                                                              \
  "\"database\":{\"type\":\"string\",\"description\":\"The database file, relative to the granted directory. " \
  "Leave it out to work in an empty database in memory, which is gone after the call.\"}"

static const toolhold_example query_examples[] = {
    {
        .task = "Which customer in shop.db spent the most?",
        .arguments = "{\"database\":\"shop.db\",\"sql\":\"SELECT customer, SUM(amount) AS total FROM orders GROUP BY "
                     "customer ORDER BY total DESC LIMIT 1\"}",
        .output = "{\"columns\":[\"customer\",\"total\"],\"rows\":[[\"Ada\",120.5]],\"truncated\":false,\"changes\":0}",
        .answer = "Ada spent the most: 120.50 in total.",
    },
    {
        .task = "What is the average of 3, 5 and 10?",
        .arguments = "{\"sql\":\"SELECT AVG(column1) AS mean FROM (VALUES (?), (?), (?))\",\"parameters\":[3,5,10]}",
        .output = "{\"columns\":[\"mean\"],\"rows\":[[6]],\"truncated\":false,\"changes\":0}",
        .answer = "The average is 6.",
    },
};

static const toolhold_example schema_examples[] = {{
    .task = "What is in shop.db?",
    .arguments = "{\"database\":\"shop.db\"}",
    .output = "{\"tables\":[{\"name\":\"orders\",\"kind\":\"table\",\"columns\":[{\"name\":\"customer\",\"type\":\"TEXT\","
              "\"not_null\":true,\"primary_key\":false},{\"name\":\"amount\",\"type\":\"REAL\",\"not_null\":true,"
              "\"primary_key\":false}],\"sql\":\"CREATE TABLE orders (customer TEXT NOT NULL, amount REAL NOT NULL)\"}],"
              "\"truncated\":false}",
    .answer = "One table, orders, with the columns customer and amount.",
}};

const toolhold_tool toolhold_tools[] = {
    {
        .name = "query",
        .title = "Run SQL",
        .description =
            "Runs SQL (SQLite dialect) against a database file, or in memory. Several statements may be separated by "
            "semicolons: they are one transaction, of which all is kept or nothing, and the rows of the last one that has "
            "any come back. Look at the tables with `schema` first. "
            "Statements that change a file need `write`.",
        .input_schema =
            "{\"type\":\"object\",\"properties\":{" DATABASE ","
            "\"sql\":{\"type\":\"string\",\"description\":\"The statement, with ? for each value of `parameters`.\"},"
            "\"parameters\":{\"type\":\"array\",\"items\":{\"type\":[\"null\",\"boolean\",\"number\",\"string\"]},"
            "\"description\":\"The values of the placeholders, in their order. Never paste values into the SQL.\"},"
            "\"write\":{\"type\":\"boolean\",\"description\":\"True if the database file is to be changed or created.\"},"
            "\"max_rows\":{\"type\":\"integer\",\"minimum\":1,\"maximum\":1000,"
            "\"description\":\"How many rows to return at most (100 if not given).\"}},"
            "\"required\":[\"sql\"],\"additionalProperties\":false}",
        .output_schema =
            "{\"type\":\"object\",\"properties\":{"
            "\"columns\":{\"type\":\"array\",\"items\":{\"type\":\"string\"}},"
            "\"rows\":{\"type\":\"array\",\"items\":{\"type\":\"array\"},"
            "\"description\":\"Values in the order of the columns; a blob is an object with base64.\"},"
            "\"truncated\":{\"type\":\"boolean\",\"description\":\"Whether rows or parts of values were left out.\"},"
            "\"changes\":{\"type\":\"integer\",\"description\":\"How many rows were inserted, updated or deleted.\"}},"
            "\"required\":[\"columns\",\"rows\",\"truncated\",\"changes\"]}",
        .annotations = TOOLHOLD_DESTRUCTIVE,
        .examples = query_examples,
        .example_count = 2,
        .run = query,
    },
    {
        .name = "schema",
        .title = "Describe a database",
        .description = "Lists the tables and views of an SQLite database with their columns. Call it before the first query.",
        .input_schema =
            "{\"type\":\"object\",\"properties\":{" DATABASE "},\"required\":[\"database\"],\"additionalProperties\":false}",
        .output_schema =
            "{\"type\":\"object\",\"properties\":{\"tables\":{\"type\":\"array\",\"items\":{\"type\":\"object\","
            "\"properties\":{\"name\":{\"type\":\"string\"},\"kind\":{\"type\":\"string\",\"enum\":[\"table\",\"view\"]},"
            "\"columns\":{\"type\":\"array\",\"items\":{\"type\":\"object\",\"properties\":{\"name\":{\"type\":\"string\"},"
            "\"type\":{\"type\":\"string\"},\"not_null\":{\"type\":\"boolean\"},\"primary_key\":{\"type\":\"boolean\"}},"
            "\"required\":[\"name\",\"type\",\"not_null\",\"primary_key\"]}},\"sql\":{\"type\":\"string\"}},"
            "\"required\":[\"name\",\"kind\",\"columns\",\"sql\"]}},"
            "\"truncated\":{\"type\":\"boolean\",\"description\":\"Whether there are more tables.\"}},"
            "\"required\":[\"tables\",\"truncated\"]}",
        .annotations = TOOLHOLD_READ_ONLY | TOOLHOLD_IDEMPOTENT,
        .examples = schema_examples,
        .example_count = 1,
        .run = schema,
    },
};
const size_t toolhold_tool_count = sizeof toolhold_tools / sizeof *toolhold_tools;
