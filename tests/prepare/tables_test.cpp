#include <gmock/gmock.h>

#include "io/arrow/tables.hpp"
#include "src/prepare/corpus_builder.hpp"
#include "src/prepare/document_reader.hpp"
#include "tests/prepare/cleaning_fixture.hpp"

#ifndef TRIREME_HAS_ARROW

TEST(Tables, AreReadByApacheArrow) {
  EXPECT_EQ(trireme::io::arrow_version(), "");
  GTEST_SKIP() << "this build is without Apache Arrow";
}

#else

#include <arrow/api.h>
#include <arrow/io/file.h>
#include <arrow/io/memory.h>
#include <arrow/ipc/writer.h>
#include <arrow/json/api.h>
#include <parquet/arrow/writer.h>

namespace trireme::prepare {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr int rows_per_group = 25;

std::string content_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// A row in the form of Arrow's tables: members in one order, without blanks.
std::string row(int i) {
  const std::string title = i % 7 == 3 ? "" : fmt::format("Title {}", i);
  const std::string text = fmt::format("Text {} of \\\"oars\\\"\\n\\u0001 \\\\ caf\u00e9 {}", i % 60,
                                       std::string(static_cast<std::size_t>(i % 40) * 20, 'a' + i % 5));
  return fmt::format(
      R"({{"id":{},"title":"{}","text":"{}","meta":{{"text":"in {}","notes":[{},{}],"url":null}},"score":{},"ok":{}}})"
      "\n",
      i, title, text, i, i, i + 1, 0.25 * i + 0.125, i % 2 == 0);
}

std::string rows(int count) {
  std::string lines;
  for (int i = 0; i < count; ++i) lines += row(i);
  return lines;
}

/// Returns lines of JSON as Arrow reads them, with texts of a type.
std::shared_ptr<arrow::Table> table_of(const std::string& lines,
                                       const std::shared_ptr<arrow::DataType>& text_type = arrow::utf8()) {
  arrow::json::ReadOptions read = arrow::json::ReadOptions::Defaults();
  read.use_threads = false;
  arrow::json::ParseOptions parse = arrow::json::ParseOptions::Defaults();
  parse.explicit_schema = arrow::schema(
      {arrow::field("id", arrow::int64()), arrow::field("title", arrow::utf8()), arrow::field("text", text_type),
       arrow::field("meta", arrow::struct_({arrow::field("text", arrow::utf8()),
                                            arrow::field("notes", arrow::list(arrow::int32())),
                                            arrow::field("url", arrow::utf8())})),
       arrow::field("score", arrow::float64()), arrow::field("ok", arrow::boolean())});
  const std::shared_ptr<arrow::io::InputStream> input = arrow::io::BufferReader::FromString(lines);
  return arrow::json::TableReader::Make(arrow::default_memory_pool(), input, read, parse)
      .ValueOrDie()
      ->Read()
      .ValueOrDie();
}

/// Writes a table in the format of the name: .parquet, .arrow (a file) or .arrows (a stream).
void write_table(const arrow::Table& table, const std::string& path,
                 parquet::Compression::type compression = parquet::Compression::SNAPPY) {
  const auto sink = arrow::io::FileOutputStream::Open(path).ValueOrDie();
  if (path.ends_with(".parquet")) {
    const auto properties = parquet::WriterProperties::Builder().compression(compression)->data_pagesize(500)->build();
    const auto arrow_properties = parquet::ArrowWriterProperties::Builder().store_schema()->build();
    ASSERT_TRUE(parquet::arrow::WriteTable(table, arrow::default_memory_pool(), sink, rows_per_group, properties,
                                           arrow_properties)
                    .ok());
  } else {
    const auto writer = path.ends_with(".arrow") ? arrow::ipc::MakeFileWriter(sink, table.schema()).ValueOrDie()
                                                 : arrow::ipc::MakeStreamWriter(sink, table.schema()).ValueOrDie();
    ASSERT_TRUE(writer->WriteTable(table, rows_per_group).ok());
    ASSERT_TRUE(writer->Close().ok());
  }
  ASSERT_TRUE(sink->Close().ok());
}

class Tables : public CorpusCleaner {
 protected:
  /// Writes lines of JSON as a table, and returns its path.
  std::string table(const std::string& name, const std::string& lines) { return table(name, *table_of(lines)); }
  std::string table(const std::string& name, const arrow::Table& table) {
    comm_.barrier();  // all have read an earlier one
    if (comm_.rank() == 0) write_table(table, folder_ + "/" + name);
    comm_.barrier();
    return folder_ + "/" + name;
  }

  /// Returns the lines that are read of a file.
  std::string read(const std::string& path, TextReaderOptions reader = {.whole_rows = true}) const {
    std::string lines;
    TextReader text(files_, std::vector<std::string>{path}, reader);
    for (TextPiece piece; text.next(piece);) lines += piece.bytes + "\n";
    return lines;
  }

  /// Builds a corpus of files on all ranks, and returns its bytes.
  std::string build(const std::vector<std::string>& inputs, const TextReaderOptions& reader) {
    CorpusBuildOptions options{.inputs = inputs, .output = folder_ + "/corpus.h5", .text = {.reader = reader}};
    options.part_bytes = 3000;
    build_corpus(files_, options, *data::make_byte_tokenizer(), pool_, comm_, [](std::int64_t, std::int64_t) {});
    comm_.barrier();
    const std::string bytes = content_of(options.output);
    comm_.barrier();
    return bytes;
  }

  Files files_ = io::prepare_files();
};

TEST_F(Tables, AreReadAsLinesOfJsonInAllFormatsAndTypesOfText) {
  const std::string lines = rows(110);
  const auto plain = table_of(lines);
  arrow::StringDictionary32Builder dictionary;
  for (int i = 0; i < 110; ++i) {
    ASSERT_TRUE(dictionary.Append(plain->column(2)->GetScalar(i).ValueOrDie()->ToString()).ok());
  }
  const auto codes = std::make_shared<arrow::ChunkedArray>(dictionary.Finish().ValueOrDie());
  const auto encoded = plain->SetColumn(2, arrow::field("text", codes->type()), codes).ValueOrDie();
  for (const auto& rows : {plain, table_of(lines, arrow::large_utf8()), encoded}) {
    for (const char* name : {"a.parquet", "a.arrow", "a.arrows"}) {
      const std::string path = table(name, *rows);
      EXPECT_EQ(read(path), lines) << name << " " << rows->schema()->ToString();
      EXPECT_EQ(read(path, {.format = TextFormat::text, .whole_rows = true}), lines) << "also as text";
      EXPECT_THAT(read(path, {.json_key = "ok,meta.url"}),
                  StartsWith(name[2] == 'p' ? R"({"meta":{"url":null},"ok":true})"
                                            : R"({"meta":{"text":"in 0","notes":[0,1],"url":null},"ok":true})"));
      EXPECT_THAT(read(path, {.json_key = "none"}), StartsWith("{}\n{}\n"));
    }
  }
}

TEST_F(Tables, HaveValuesOfManyTypes) {
  const auto value = [](const std::shared_ptr<arrow::Scalar>& scalar) {
    return arrow::MakeArrayFromScalar(*scalar, 2).ValueOrDie();
  };
  const auto parsed = [&](const std::shared_ptr<arrow::DataType>& type, std::string_view text) {
    return value(arrow::Scalar::Parse(type, text).ValueOrDie());
  };
  arrow::MapBuilder map(arrow::default_memory_pool(), std::make_shared<arrow::StringBuilder>(),
                        std::make_shared<arrow::Int8Builder>());
  ASSERT_TRUE(map.Append().ok());
  ASSERT_TRUE(static_cast<arrow::StringBuilder*>(map.key_builder())->Append("k").ok());
  ASSERT_TRUE(static_cast<arrow::Int8Builder*>(map.item_builder())->Append(-1).ok());
  ASSERT_TRUE(map.AppendNull().ok());
  std::vector<std::pair<std::string, std::shared_ptr<arrow::Array> > > columns = {
      {"large", parsed(arrow::uint64(), "18446744073709551615")},
      {"day", parsed(arrow::date32(), "2024-02-29")},
      {"time", parsed(arrow::timestamp(arrow::TimeUnit::MILLI), "2024-02-29 12:00:01")},
      {"decimal", value(std::make_shared<arrow::Decimal128Scalar>(arrow::Decimal128(-1250), arrow::decimal128(9, 2)))},
      {"float", value(arrow::MakeScalar(1e30f))},
      {"nan", value(arrow::MakeScalar(std::nan("")))},
      {"none", value(arrow::MakeNullScalar(arrow::null()))},
      {"map", map.Finish().ValueOrDie()},
      {"bytes", value(std::make_shared<arrow::BinaryScalar>("a\xFF"))},
  };
  arrow::StringViewBuilder views;
  for (const char* text : {"short", "a string that is longer than what a view holds"}) {
    ASSERT_TRUE(views.Append(text).ok());
  }
  columns.emplace_back("view", views.Finish().ValueOrDie());
  arrow::FieldVector fields;
  arrow::ArrayVector arrays;
  for (const auto& [name, array] : columns) {
    fields.push_back(arrow::field(name, array->type()));
    arrays.push_back(array);
  }
  const std::string first =
      R"({"large":18446744073709551615,"day":"2024-02-29","time":"2024-02-29 12:00:01.000","decimal":"-12.50",)"
      R"("float":1e+30,"nan":null,"none":null,"map":)";
  for (const char* name : {"a.parquet", "a.arrow"}) {
    const std::string path = table(name, *arrow::Table::Make(arrow::schema(fields), arrays));
    EXPECT_EQ(read(path), first + R"([{"key":"k","value":-1}],"bytes":"a)" + "\xFF" + R"(","view":"short"})" + "\n" +
                              first + R"(null,"bytes":"a)" + "\xFF" +
                              R"(","view":"a string that is longer than what a view holds"})" + "\n");
    options_.inputs = {path};
    EXPECT_THAT(refusal(), HasSubstr(name + std::string(":1:")));
    EXPECT_THAT(refusal(), HasSubstr("the byte 0xff is not UTF-8"));
  }
  const auto runs = arrow::RunEndEncodedArray::Make(2, value(arrow::MakeScalar(std::int32_t{2}))->Slice(0, 1),
                                                    value(arrow::MakeScalar(1))->Slice(0, 1))
                        .ValueOrDie();
  const auto unknown = arrow::Table::Make(arrow::schema({arrow::field("runs", runs->type())}), {runs});
  options_.inputs = {table("runs.arrow", *unknown)};
  EXPECT_THAT(refusal(), HasSubstr("runs.arrow, row group 1: the column 'runs': values of the type run_end_encoded"));
}

TEST_F(Tables, MakeTheCorpusOfTheSameLinesOfJson) {
  const std::string lines = rows(110);
  const std::string other = write("b.txt", "A text.");
  for (const char* key : {"text", "title,meta.text"}) {
    const TextReaderOptions reader{.json_key = key};
    const std::string expected = build({write("a.jsonl", lines), other}, reader);
    for (const char* name : {"a.parquet", "a.arrow", "a.arrows"}) {
      EXPECT_TRUE(build({table(name, lines), other}, reader) == expected) << name << " " << key;
    }
  }
}

TEST_F(Tables, AreDividedAmongRanksByRowGroups) {
  const std::string lines = rows(110);
  for (const auto& [name, ranks] : {std::pair("a.parquet", 3), {"a.arrow", 3}, {"a.arrows", 1}}) {
    const std::string path = table(name, lines);
    std::string all;
    int busy = 0;
    for (int rank = 0; rank < 3; ++rank) {
      DocumentReader reader(files_, {path}, {.whole_rows = true}, rank, 3);
      const std::size_t before = all.size();
      for (TextPiece piece; reader.next(piece);) all += piece.bytes + "\n";
      busy += all.size() > before ? 1 : 0;
      EXPECT_EQ(reader.bytes_read(), reader.total_bytes()) << name;
    }
    EXPECT_EQ(all, lines) << name;
    EXPECT_EQ(busy, ranks) << name;
  }
}

TEST_F(Tables, AreCleanedAsTheSameLinesOfJson) {
  const std::string lines = rows(110);
  options_.inputs = {write("a.jsonl", lines)};
  const CorpusCleanReport report = clean();
  EXPECT_GT(report.exact_duplicates + report.near_duplicates, 10);
  comm_.barrier();
  const std::string kept = content_of(options_.output), removed = content_of(options_.report);
  for (const char* name : {"a.parquet", "a.arrow", "a.arrows"}) {
    options_.inputs = {table(name, lines)};
    clean();
    comm_.barrier();
    EXPECT_EQ(content_of(options_.output), kept) << name;
    EXPECT_EQ(content_of(options_.report), removed) << name;
    comm_.barrier();
  }
}

TEST_F(Tables, HaveBadLinesWhereATextIsNull) {
  std::string lines = rows(60);
  lines.replace(lines.find("\"in 40\""), 7, "null");
  for (const char* name : {"a.parquet", "a.arrow", "a.arrows"}) {
    const std::string path = table(name, lines);
    TextReaderOptions reader{.json_key = "meta.text"};
    EXPECT_THAT(test::message_of([&] { build({path}, reader); }),
                HasSubstr(name + std::string(":41: the value of 'meta.text' is null, not a string")));
    reader.json_key = "words";
    EXPECT_THAT(test::message_of([&] { build({path}, reader); }),
                HasSubstr(": the object has no key 'words'. Try another <json_key>"));
  }
}

TEST_F(Tables, NameTheFileWhereTheyAreDamaged) {
  for (const char* name : {"a.parquet", "a.arrow", "a.arrows"}) {
    const std::string bytes = content_of(table(name, rows(60)));
    for (const std::size_t size : {std::size_t{12}, bytes.size() / 2, bytes.size() - 9}) {
      const std::string path = write(name, bytes.substr(0, size));
      EXPECT_THAT(test::message_of([&] { read(path); }), HasSubstr(name)) << size;
    }
    int failures = 0;
    for (std::size_t at = 16; at + 1 < bytes.size(); at += bytes.size() / 40) {
      std::string flipped = bytes;
      flipped[at] = static_cast<char>(~flipped[at]);
      const std::string path = write(name, flipped);
      try {
        read(path);
      } catch (const DataError& error) {
        EXPECT_THAT(error.what(), HasSubstr(name));
        ++failures;
      }
    }
    EXPECT_GT(failures, 3) << name;
  }
  std::string pages = content_of(table("a.parquet", rows(60)));
  const std::size_t half = pages.size() / 4;
  for (std::size_t i = half; i < half + 300; ++i) pages[i] = static_cast<char>(~pages[i]);
  const std::string path = write("a.parquet", pages);
  EXPECT_THAT(test::message_of([&] { read(path); }), HasSubstr("a.parquet, row group "));
}

}  // namespace
}  // namespace trireme::prepare

#endif
