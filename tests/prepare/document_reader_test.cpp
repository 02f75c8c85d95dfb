#include "src/prepare/document_reader.hpp"

#include <gmock/gmock.h>

#include <fstream>

#include "tests/prepare/disk.hpp"
#include "tests/support/message_of.hpp"
#include "tests/support/temporary_directory.hpp"

namespace trireme::prepare {
namespace {

/// The texts of all documents, in the order of ranks.
std::vector<std::string> documents(const std::vector<std::string>& paths, TextReaderOptions options, int ranks) {
  std::vector<std::string> texts;
  for (int rank = 0; rank < ranks; ++rank) {
    DocumentReader reader(disk, paths, options, rank, ranks);
    for (TextPiece piece; reader.next(piece);) {
      EXPECT_TRUE(piece.ends_document);
      texts.push_back(text_of(disk, piece, options));
    }
    EXPECT_EQ(reader.bytes_read(), reader.total_bytes());
  }
  return texts;
}

// Lines of all lengths, blank lines, an empty file, and a file without a final line end. For any number of ranks, even
// more than there are bytes, and any size of pieces, each document is read once and in order.
TEST(DocumentReader, GivesEveryDocumentToOneRankInOrder) {
  const test::TemporaryDirectory directory;
  const std::vector<std::string> paths = {directory / "a.jsonl", directory / "empty.txt", directory / "b.txt",
                                          directory / "c.txt"};
  std::vector<std::string> whole;
  std::ofstream json(paths[0]);
  for (int i = 0; i < 20; ++i) {
    const std::string text(static_cast<std::size_t>(i * 7 % 40), static_cast<char>('a' + i));
    json << "{\"text\": \"" << text << "\"}\n" << (i % 3 == 0 ? "\n" : "");
    whole.push_back(text);
  }
  json.close();
  std::ofstream(paths[1]).flush();
  std::ofstream(paths[2]) << "one line\n \nanother one, longer\n\n";
  std::ofstream(paths[3]) << "last lines\nwithout end";
  whole.insert(whole.end(), {"one line\n \nanother one, longer\n\n", "last lines\nwithout end"});
  const std::vector<std::string> by_lines = {"one line", "another one, longer", "last lines", "without end"};
  for (const std::int64_t piece_bytes : {5, 1 << 20}) {
    TextReaderOptions options;
    options.piece_bytes = piece_bytes;
    for (const int ranks : {1, 2, 3, 7, 64, 1000}) {
      options.format = TextFormat::by_name;
      EXPECT_EQ(documents(paths, options, ranks), whole) << ranks << " ranks";
      options.format = TextFormat::lines;
      EXPECT_EQ(documents({paths.begin() + 1, paths.end()}, options, ranks), by_lines) << ranks << " ranks";
    }
  }
}

TEST(DocumentReader, DropsTheCarriageReturnOfALine) {
  const test::TemporaryDirectory directory;
  std::ofstream(directory / "a.txt") << "one\r\ntwo\r\n\r\nthree";
  TextReaderOptions options;
  options.format = TextFormat::lines;
  EXPECT_EQ(documents({directory / "a.txt"}, options, 1), (std::vector<std::string>{"one", "two", "three"}));
}

TEST(DocumentReader, LimitsLinesAndTextsToTheByte) {
  const test::TemporaryDirectory directory;
  std::ofstream(directory / "a.txt") << "short\n123456";
  TextReaderOptions options;
  const auto error = [&] { return test::message_of<DataError>([&] { documents({directory / "a.txt"}, options, 1); }); };
  options.max_bytes = 11;
  EXPECT_THAT(error(), testing::HasSubstr("the document has more than 11 bytes"));
  options.format = TextFormat::lines;
  options.max_bytes = 5;
  EXPECT_THAT(error(), testing::HasSubstr("the line at byte 6 has more than 5 bytes"));
  options.max_bytes = 6;
  EXPECT_EQ(error(), "nothing was thrown");
}

}  // namespace
}  // namespace trireme::prepare
