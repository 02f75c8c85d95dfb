#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::data {

/// A label of a classifier and its least probability.
struct ClassLabel {
  std::string name;  ///< without "__label__"
  double min_probability = 0.5;
};

/// A classifier of texts by fastText.
class TextClassifier {
 public:
  /// Reads a model that `fasttext supervised` wrote (.bin or .ftz), and checks that it has `labels`. Throws
  /// EnvironmentError if the program was built without fastText, DataError if the file is no such model, ConfigError
  /// for an unknown label.
  TextClassifier(const std::string& path, std::span<const ClassLabel> labels);
  ~TextClassifier();
  TextClassifier(TextClassifier&&) = delete;

  /// Returns the greatest excess of a label's probability over its least one, -1 if no label is found. Line feeds count
  /// as spaces. Throws DataError if numbers of the model are not finite. Thread-safe.
  double excess(std::string_view text) const;

 private:
  struct Model;
  std::unique_ptr<Model> model_;
  std::vector<ClassLabel> labels_;
};

/// Returns whether this program was built with fastText.
bool can_classify_texts();

}  // namespace trireme::data
