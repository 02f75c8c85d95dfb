#include "src/data/quality/model_file.hpp"

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <limits>

#include "src/base/check.hpp"

namespace trireme::data {
namespace {

constexpr std::int32_t magic = 793712314, versions[] = {11, 12};
constexpr std::int64_t centroids = 256;                     // centroids of a part of a quantizer
constexpr std::int64_t max_tokens = 1'000'000'000'000'000;  // as fastText's tree of labels assumes
constexpr std::int64_t max_ngram = 1000;
constexpr std::size_t max_word_bytes = std::size_t{1} << 20;
constexpr std::int64_t max_int = std::numeric_limits<std::int32_t>::max();

/// Reads the file in the order of its parts (fastText's `Args`, `Dictionary`, `DenseMatrix`, `QuantMatrix` and
/// `ProductQuantizer`), in the byte order of this machine.
class ModelFile {
 public:
  explicit ModelFile(const std::string& path) : path_(path), file_(path, std::ios::binary) {
    TRIREME_CHECK(file_.seekg(0, std::ios::end).good(), DataError, "cannot open the classifier {}", path_);
    left_ = file_.tellg();
    file_.seekg(0);
  }

  void check() {
    need(left_ >= 8 && take<std::int32_t>() == magic, "its first bytes are those of another file");
    need(std::ranges::count(versions, take<std::int32_t>()) > 0, "its version is neither 11 nor 12");
    read_options();
    read_dictionary();
    const bool is_quantized = take_flag();
    need(is_quantized || pruned_ < 0, "its buckets are pruned, though it is not quantized");
    read_matrix(is_quantized, rows_);
    const bool has_quantized_output = take_flag() && is_quantized;
    read_matrix(has_quantized_output, is_supervised_ ? labels_ : words_);
    need(left_ == 0, "more bytes follow its end");
  }

 private:
  void need(bool holds, const char* fault) const {
    TRIREME_CHECK(holds, DataError, "{} is not a model of fastText, or damaged: {}", path_, fault);
  }
  void skip(std::int64_t size_bytes) {
    need(size_bytes >= 0 && size_bytes <= left_, "it was cut off, or a size in it is wrong");
    left_ -= size_bytes;
    file_.seekg(size_bytes, std::ios::cur);
  }
  template <class Number>
  Number take() {
    need(left_ >= std::int64_t{sizeof(Number)}, "it was cut off");
    Number number{};
    file_.read(reinterpret_cast<char*>(&number), sizeof(number));
    left_ -= sizeof(number);
    return number;
  }
  bool take_flag() {
    const auto flag = take<std::uint8_t>();
    need(flag <= 1, "a flag is neither 0 nor 1");
    return flag == 1;
  }

  void read_options() {
    dim_ = take<std::int32_t>();
    need(dim_ > 0 && dim_ <= (1 << 20), "its dimension is not from 1 to 2^20");
    skip(4 * sizeof(std::int32_t));  // window, epochs, least count, negatives
    const auto word_ngrams = take<std::int32_t>();
    const auto loss = take<std::int32_t>(), kind = take<std::int32_t>();
    need(loss >= 1 && loss <= 4 && kind >= 1 && kind <= 3, "its loss or kind is unknown");
    is_supervised_ = kind == 3;
    buckets_ = take<std::int32_t>();
    const auto min_ngram = take<std::int32_t>(), max_chars = take<std::int32_t>();
    // fastText takes a negative limit of characters as one without end.
    need(word_ngrams <= max_ngram && min_ngram >= 0 && max_chars >= 0 && max_chars <= max_ngram,
         "it has n-grams of more than 1000 parts, or of a negative number");
    const bool uses_buckets = word_ngrams > 1 || max_chars > 0;
    need(buckets_ >= (uses_buckets ? 1 : 0), "it has n-grams, but no buckets for them");
    skip(sizeof(std::int32_t) + sizeof(double));  // update rate, sampling threshold
  }

  void read_dictionary() {
    const auto entries = take<std::int32_t>();
    words_ = take<std::int32_t>();
    labels_ = take<std::int32_t>();
    skip(sizeof(std::int64_t));  // tokens
    pruned_ = take<std::int64_t>();
    need(words_ >= 0 && labels_ >= 0 && words_ + labels_ == entries && entries > 0,
         "its numbers of words do not add up");
    need(!is_supervised_ || labels_ > 0, "it has no labels");
    need(pruned_ >= -1 && pruned_ <= max_int, "a size in it is wrong");
    for (std::int64_t i = 0; i < entries; ++i) {
      std::size_t bytes = 0;
      while (take<char>() != '\0') need(++bytes <= max_word_bytes, "a word has more than 2^20 bytes");
      const auto count = take<std::int64_t>();
      need(count >= 0 && count <= max_tokens / entries, "a word has a wrong count");
      need(take<std::int8_t>() == (i < words_ ? 0 : 1), "its labels do not follow its words");
    }
    rows_ = words_ + (pruned_ >= 0 ? pruned_ : buckets_);
    for (std::int64_t i = 0; i < pruned_; ++i) {
      skip(sizeof(std::int32_t));  // the bucket
      const auto row = take<std::int32_t>();
      need(row >= 0 && row < pruned_, "a bucket has no row");
    }
  }

  void read_matrix(bool is_quantized, std::int64_t rows) {
    const bool has_norms = is_quantized && take_flag();
    const auto found_rows = take<std::int64_t>(), columns = take<std::int64_t>();
    need(found_rows == rows && columns == dim_ && rows <= max_int, "the sizes of a matrix are wrong");
    if (!is_quantized) return skip(rows * columns * std::int64_t{sizeof(float)});
    const auto codes = take<std::int32_t>();
    skip(codes);
    need(read_quantizer(dim_) * rows == codes, "a matrix has a wrong number of codes");
    if (!has_norms) return;
    skip(rows);
    read_quantizer(1);
  }

  /// Returns the codes of a row.
  std::int64_t read_quantizer(std::int64_t columns) {
    const auto dim = take<std::int32_t>(), parts = take<std::int32_t>(), part = take<std::int32_t>(),
               last = take<std::int32_t>();
    need(dim == columns && parts > 0 && part > 0 && last > 0 && last <= part &&
             std::int64_t{parts - 1} * part + last == columns,
         "the parts of a quantizer do not add up");
    skip(columns * centroids * std::int64_t{sizeof(float)});
    return parts;
  }

  std::string path_;
  std::ifstream file_;
  std::int64_t left_ = 0;  // bytes
  std::int64_t dim_ = 0, buckets_ = 0, words_ = 0, labels_ = 0, rows_ = 0;
  std::int64_t pruned_ = 0;  // buckets with a row; -1: all
  bool is_supervised_ = false;
};

}  // namespace

void check_model_file(const std::string& path) { ModelFile(path).check(); }

}  // namespace trireme::data
