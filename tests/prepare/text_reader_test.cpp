#include "src/prepare/text_reader.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <cstring>
#include <fstream>

#include "src/base/error.hpp"
#include "src/base/hash.hpp"
#include "tests/prepare/disk.hpp"
#include "tests/support/temporary_directory.hpp"

namespace trireme::prepare {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Lt;
using ::testing::SizeIs;
using ::testing::ThrowsMessage;
using namespace std::string_literals;

class TextReaderTest : public ::testing::Test {
 protected:
  std::string file(const std::string& name, const std::string& bytes) {
    std::ofstream(directory_ / name, std::ios::binary) << bytes;
    return directory_ / name;
  }
  /// Reads the documents of files, joining their pieces.
  std::vector<std::string> documents(const std::vector<std::string>& paths, const TextReaderOptions& options = {}) {
    TextReader reader(disk, paths, options);
    std::vector<std::string> found;
    std::string document;
    pieces_ = 0;
    for (TextPiece piece; reader.next(piece);) {
      ++pieces_;
      document += text_of(disk, piece, options);
      if (piece.ends_document) found.push_back(std::exchange(document, {}));
    }
    EXPECT_EQ(document, "");
    EXPECT_EQ(reader.bytes_read(), reader.total_bytes());
    return found;
  }
  void expect_error(const std::string& path, const std::string& words, const TextReaderOptions& options = {}) {
    EXPECT_THAT([&] { documents({path}, options); },
                ThrowsMessage<DataError>(AllOf(HasSubstr(words), SizeIs(Lt(path.size() + 400)))));
  }
  test::TemporaryDirectory directory_;
  int pieces_ = 0;
};

TEST_F(TextReaderTest, TakesATextFileAsOneDocument) {
  EXPECT_THAT(documents({file("a.txt", "one\r\ntwo\n"), file("b", "no end"), file("c.txt", "")}),
              ElementsAre("one\r\ntwo\n", "no end", ""));
  const std::string bytes = "a\0b\x01\x7f\x1b c"s;
  EXPECT_THAT(documents({file("a.txt", bytes), file("b.jsonl", R"({"text": "a\u0000b\u001b"})")}),
              ElementsAre(bytes, "a\0b\x1b"s));
}

TEST_F(TextReaderTest, TakesALineOfJsonAsOneDocument) {
  const std::string lines =
      "{\"text\": \"one\"}\r\n\n   \r\n{\"id\": [1, {\"text\": \"inner\"}], \"text\": \"zw\\u00f6\\nlf\"}\n{\"text\": "
      "\"\"}\n"
      "{\"text\": \"last\"}";
  EXPECT_THAT(documents({file("a.jsonl", lines)}), ElementsAre("one", "zwö\nlf", "", "last"));
}

TEST_F(TextReaderTest, ReadsTheGivenFormatAndAnyKey) {
  const std::string path = file("a.txt", "{\"body\": \"x\", \"text\": 1}\n");
  EXPECT_THAT(documents({path}, {.format = TextFormat::json_lines, .json_key = "body"}), ElementsAre("x"));
  EXPECT_THAT(documents({file("b.json", "plain")}, {.format = TextFormat::text}), ElementsAre("plain"));
}

TEST_F(TextReaderTest, JoinsTheTextsOfSeveralAndNestedKeys) {
  const std::string path =
      file("a.jsonl", R"({"m": {"x": [{"text": "list"}], "text": "in", "n": {"text": "deep"}}, "t": "T"})"
                      "\n");
  EXPECT_THAT(documents({path}, {.json_key = "t,m.text"}), ElementsAre("T\n\nin"));
  EXPECT_THAT(documents({path}, {.json_key = "m.n.text"}), ElementsAre("deep"));
  expect_error(path, "a.jsonl:1: the object has no key 'text'");
  expect_error(path, "the object has no key 'm.x.text'", {.json_key = "t,m.x.text"});
  expect_error(path, "the value of 'm.n' is an object, not a string", {.json_key = "m.n,t"});
  expect_error(file("b.jsonl", R"({"m": {"t": "a"}, "m.t": "b"})"), "the key 'm.t' occurs twice", {.json_key = "m.t"});
}

TEST_F(TextReaderTest, NamesLineAndColumnOfWhatIsNotJson) {
  const std::string good = "{\"text\": \"x\"}\n\n";
  const auto expect = [&](const std::string& line, const std::string& words) {
    expect_error(file("bad.jsonl", good + line + "\n" + good), words);
  };
  expect("{\"text\": }", "bad.jsonl:3:10: not JSON");
  expect("{\"text\": \"x\"} {", "bad.jsonl:3:15: not JSON");
  expect("{\"text\": \"x\"", "bad.jsonl:3:");
  expect("{\"text\": \"\\ud800\"}", "bad.jsonl:3:");
  expect("{\"other\": \"x\"}", "bad.jsonl:3: the object has no key 'text'");
  expect("{\"a\": {\"text\": \"x\"}}", "no key 'text'");
  expect("{\"text\": 5}", "bad.jsonl:3: the value of 'text' is a number, not a string");
  expect("{\"text\": null}", "is null");
  expect("{\"text\": [\"x\"]}", "is an array");
  expect("{\"text\": {\"text\": \"x\"}}", "is an object");
  expect("{\"text\": true}", "is a boolean");
  expect("{\"text\": \"x\", \"text\": \"y\"}", "twice");
  expect("[\"text\"]", "the line is an array, not an object");
  expect("\"text\"", "the line is a string, not an object");
  expect("17", "the line is a number");
  expect("{\"text\": " + std::string(10000, '1') + "e}", "bad.jsonl:3:10011: not JSON");
  expect(std::string(100000, '['), "bad.jsonl:3: the line is an array");
  expect("{\"a\": " + std::string(100000, '['), "not JSON");
}

TEST_F(TextReaderTest, NamesTheByteThatIsNotUtf8) {
  const auto expect = [&](const std::string& bytes, const std::string& words) {
    expect_error(file("bad.txt", "zwölf " + bytes), words);
  };
  expect("\xC0\xAF", "bad.txt, byte 7: the byte 0xc0 is not UTF-8: an overlong form");
  expect("\xE0\x80\xAF", "overlong");
  expect("\xF0\x80\x80\xAF", "overlong");
  expect("\xED\xA0\x80", "byte 7: the byte 0xed is not UTF-8: half of a surrogate pair");
  expect("ok \xE2\x82", "byte 10: the byte 0xe2 is not UTF-8: a character cut short");
  expect("\xE2\x82 x", "cut short");
  expect("\x80", "continuation byte");
  expect("\xF4\x90\x80\x80", "beyond");
  expect("\xFF", "beyond");
  expect_error(file("bad.jsonl", "{\"text\": \"x\"}\n{\"text\": \"\xE4\"}\n"), "bad.jsonl:2:11: the byte 0xe4");
}

TEST_F(TextReaderTest, CountsBytesBeyondTheFirstPiece) {
  std::string text;
  while (text.size() < 5000) text += "word ";
  text[3333] = '\xE4';
  expect_error(file("bad.txt", text), "byte 3333:", {.piece_bytes = 100});
}

TEST_F(TextReaderTest, NamesByteOrderMarks) {
  expect_error(file("a.txt", "\xFF\xFE"s + "a\0"s), "byte-order mark of UTF-16");
  expect_error(file("a.txt", "\xFE\xFF\0a"s), "byte-order mark of UTF-16");
  expect_error(file("a.txt", "\xEF\xBB\xBFtext"), "UTF-8 byte-order mark");
}

TEST_F(TextReaderTest, RefusesAllButRegularFiles) {
  expect_error(directory_.path(), "is a directory");
  expect_error("/dev/zero", "is a device");
  ASSERT_EQ(mkfifo((directory_ / "pipe").c_str(), 0600), 0);
  expect_error(directory_ / "pipe", "is a pipe");
}

TEST_F(TextReaderTest, CutsTextsIntoPiecesOnlyBeforeWhiteSpace) {
  std::string text;
  for (int i = 0; text.size() < 100000; ++i) text += std::string(i % 3, ' ') + "word" + std::to_string(i) + "\n\n";
  const TextReaderOptions options{.piece_bytes = 1000};
  EXPECT_THAT(documents({file("a.txt", text)}, options), ElementsAre(text));
  EXPECT_GT(pieces_, 95);
  TextReader reader(disk, {directory_ / "a.txt"}, options);
  std::size_t position = 0;
  for (TextPiece piece; reader.next(piece);) {
    EXPECT_EQ(piece.position, static_cast<std::int64_t>(position));
    EXPECT_LE(piece.bytes.size(), 1000u);
    position += piece.bytes.size();
    EXPECT_TRUE(position == text.size() || data::is_word_cut(text, position)) << position;
  }
  EXPECT_EQ(position, text.size());
}

TEST_F(TextReaderTest, ContinuesToTheFirstBoundaryAndCutsALongRunBetweenCharacters) {
  std::string text;
  while (text.size() < 3000) text += "ö";
  text += " y";
  EXPECT_THAT(documents({file("a.txt", text)}, {.piece_bytes = 100}), ElementsAre(text));
  EXPECT_EQ(pieces_, 2);
  const TextReaderOptions options{.piece_bytes = 100, .max_uncut_bytes = 1001};
  EXPECT_THAT(documents({directory_ / "a.txt"}, options), ElementsAre(text));
  TextReader reader(disk, {directory_ / "a.txt"}, options);
  std::vector<std::size_t> sizes;
  for (TextPiece piece; reader.next(piece);) sizes.push_back(piece.bytes.size());
  EXPECT_THAT(sizes, ElementsAre(1000, 1000, 1000, 2));
  EXPECT_EQ(reader.forced_cuts(), 2);  // the third cut is an allowed one
  EXPECT_THAT(documents({directory_ / "a.txt"},
                        {.check_utf8 = false, .can_cut = [](auto, auto) { return true; }, .piece_bytes = 1000}),
              ElementsAre(text));
  EXPECT_EQ(pieces_, 4);
}

class CompressedInput : public TextReaderTest, public ::testing::WithParamInterface<const char*> {
 protected:
  /// Packs each member with the program under test, and concatenates them in one file.
  std::string packed(const std::string& name, const std::vector<std::string>& members) {
    std::string all;
    for (const std::string& member : members) {
      const std::string plain = file("plain", member);
      EXPECT_EQ(std::system(fmt::format("{} -c {} > {}.packed", GetParam(), plain, plain).c_str()), 0);
      all += test::content_of(plain + ".packed");
    }
    return file(name, all);
  }
  std::string long_text() const {
    std::string text;
    for (std::uint64_t i = 0; text.size() < 3'000'000; ++i) text += fmt::format("{:x} ", mix64(i));
    return text;
  }
};

TEST_P(CompressedInput, IsDetectedByContentAndReadThroughAllMembers) {
  const std::string text = long_text();
  EXPECT_THAT(documents({packed("a.txt", {text, "", " two", " three"}), packed("b.jsonl.gz", {"{\"text\": \"x\"}\n"}),
                         packed("c.json.zst", {"{\"text\": \"y\"}\n"}), packed("d.txt", {""})}),
              ElementsAre(text + " two three", "x", "y", ""));
}

TEST_P(CompressedInput, MayBePaddedWithZeros) {
  const std::string name = GetParam();
  if (!name.starts_with("gzip") && !name.starts_with("xz")) GTEST_SKIP() << "neither does its program accept them";
  const std::string zeros(512, '\0');
  const std::string one = test::content_of(packed("one", {"one "})), two = test::content_of(packed("two", {"two"}));
  EXPECT_THAT(documents({file("padded", one + zeros + two + zeros)}), ElementsAre("one two"));
}

TEST_P(CompressedInput, NamesTheByteOfDamageOrTruncation) {
  const std::string path = packed("a.txt", {long_text()});
  const std::string bytes = test::content_of(path);
  for (const std::size_t size : {std::size_t{5}, bytes.size() / 2, bytes.size() - 1}) {
    expect_error(file("a.txt", bytes.substr(0, size)), fmt::format("a.txt, byte {}: the ", size));
    expect_error(path, "not complete: the file was cut off");
  }
  std::string flipped = bytes;
  for (std::size_t i = 0; i < 64; ++i)
    flipped[bytes.size() / 2 + i] = static_cast<char>(~flipped[bytes.size() / 2 + i]);
  expect_error(file("a.txt", flipped), "data are damaged (");
  expect_error(file("a.txt", bytes + "text behind the last member"), "data are damaged (");
}

TEST_P(CompressedInput, IsRefusedIfItsContentIsCompressedAgainOrNotText) {
  expect_error(packed("a.txt", {"PAR1\x15\0\x15"s}),
               "a.txt is not text, its first bytes are those of Parquet: convert");
  const std::string once = packed("once", {"text"});
  EXPECT_EQ(std::system(fmt::format("{0} -c {1} > {1}.twice", GetParam(), once).c_str()), 0);
  expect_error(once + ".twice", "unpack it first, once more where it was packed twice");
}

INSTANTIATE_TEST_SUITE_P(Programs, CompressedInput, ::testing::Values("gzip", "zstd -q", "bzip2 -1", "xz -0"),
                         [](const auto& info) { return std::string(info.param, std::strcspn(info.param, " ")); });

TEST_F(TextReaderTest, RefusesContainersByNameWhateverBytesAreAllowed) {
  const std::pair<std::string, const char*> kinds[] = {
      {"PAR1\x15\x04"s, "Parquet"},
      {"ARROW1\0\0"s, "Arrow or Feather"},
      {"\xFF\xFF\xFF\xFF\x10\0"s, "an Arrow stream"},
      {"FEA1\0\0"s, "Feather"},
      {"ORC\n\x06"s, "ORC"},
      {"Obj\x01"s, "Avro"},
      {"SQLite format 3\0"s, "an SQLite database"},
      {"\x89HDF\r\n\x1A\n"s, "HDF5"},
      {"\x04\"M\x18"s, "lz4"},
      {"PK\x03\x04"s, "zip"},
      {"7z\xBC\xAF'\x1C"s, "7z"},
      {"name\0"s + std::string(252, '\0') + "ustar", "tar"},
  };
  for (const auto& [bytes, name] : kinds) {
    for (const char* path : {"a.txt", "a.jsonl"}) {
      expect_error(file(path, bytes + std::string(9000, 'x')), fmt::format("its first bytes are those of {}:", name),
                   {.check_utf8 = false});
    }
  }
  EXPECT_THAT(documents({file("a.txt", "ORCs live here"), file("b.txt", "PAR1 is a gene")}),
              ElementsAre("ORCs live here", "PAR1 is a gene"));
}

TEST_F(TextReaderTest, RefusesUncompressedFilesWithCompressedNames) {
  for (const char* name : {"a.jsonl.gz", "a.zst", "a.json.bz2", "a.xz"}) {
    expect_error(file(name, "{\"text\": \"x\"}"), "does not hold compressed data, as its name says");
  }
  EXPECT_THAT(documents({file("skippable.zst", "P*M\x18\x01\0\0\0x"s)}), ElementsAre(""));
}

TEST_F(TextReaderTest, RefusesLinesThatAreTooLong) {
  const std::string path = file("a.jsonl", "{\"text\": \"\"}\n{\"text\": \"" + std::string(3000000, 'x') + "\"}\n");
  expect_error(path, "a.jsonl:2: the line has more than 2000000 bytes", {.max_bytes = 2000000});
  expect_error(file("b.jsonl", "{\"text\": \"0123456789\"}"), "b.jsonl:1: the line has more", {.max_bytes = 10});
}

}  // namespace
}  // namespace trireme::prepare
