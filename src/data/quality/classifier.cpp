#include "src/data/quality/classifier.hpp"

#include "src/base/check.hpp"

#ifdef TRIREME_HAS_FASTTEXT
#include <fasttext/fasttext.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <sstream>

#include "src/data/quality/model_file.hpp"
#endif

namespace trireme::data {

#ifdef TRIREME_HAS_FASTTEXT

namespace {

constexpr std::string_view label_prefix = "__label__";

std::string_view without_prefix(std::string_view label) {
  return label.substr(label.starts_with(label_prefix) ? label_prefix.size() : 0);
}

}  // namespace

struct TextClassifier::Model {
  fasttext::FastText model;
};

TextClassifier::TextClassifier(const std::string& path, std::span<const ClassLabel> labels)
    : model_(std::make_unique<Model>()), labels_(labels.begin(), labels.end()) {
  check_model_file(path);
  try {
    model_->model.loadModel(path);
  } catch (const std::exception& error) {
    throw DataError("{} is not a model of fastText: {}", path, error.what());
  }
  const fasttext::FastText& model = model_->model;
  TRIREME_CHECK(model.getArgs().model == fasttext::model_name::sup, DataError,
                "{} has word vectors, not a classifier: train one with `fasttext supervised`", path);
  for (const ClassLabel& label : labels_) {
    if (model.getLabelId(std::string(label_prefix) + label.name) >= 0) continue;
    std::vector<std::string> known;
    for (int i = 0; i < model.getDictionary()->nlabels(); ++i) {
      known.emplace_back(without_prefix(model.getDictionary()->getLabel(i)));
      if (known.size() == 20) break;
    }
    throw ConfigError(fmt::format("the classifier {} has no label '{}': give some of {}{}", path, label.name,
                                  fmt::join(known, ", "), known.size() == 20 ? " ..." : ""));
  }
}

double TextClassifier::excess(std::string_view text) const {
  std::string line(text);
  std::ranges::replace(line, '\n', ' ');
  std::istringstream stream(line + "\n");
  std::vector<std::pair<fasttext::real, std::string>> found;
  try {
    model_->model.predictLine(stream, found, model_->model.getDictionary()->nlabels(), 0);
  } catch (const std::exception& error) {  // numbers of the model that are not finite
    throw DataError("the classifier fails on a text, its model is damaged: {}", error.what());
  }
  double most = -1;
  for (const ClassLabel& label : labels_) {
    for (const auto& [probability, name] : found) {
      if (without_prefix(name) != label.name) continue;
      most = std::max(most, static_cast<double>(probability) - label.min_probability);
    }
  }
  return most;
}

bool can_classify_texts() { return true; }

#else

struct TextClassifier::Model {};

TextClassifier::TextClassifier(const std::string&, std::span<const ClassLabel>) {
  throw EnvironmentError(
      "a classifier needs fastText, and this program was built without it. Install it (Debian: libfasttext-dev) and "
      "build again");
}

double TextClassifier::excess(std::string_view) const { return -1; }

bool can_classify_texts() { return false; }

#endif

TextClassifier::~TextClassifier() = default;

}  // namespace trireme::data
