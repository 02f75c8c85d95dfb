#include "io/checkpoint/manifest_json.hpp"

#include <gmock/gmock.h>

#include "src/base/error.hpp"
#include "src/base/hash.hpp"

namespace trireme::io {
namespace {

using checkpoint::Manifest;
using testing::HasSubstr;
using testing::ThrowsMessage;

Manifest small_manifest() {
  Manifest manifest;
  manifest.step = std::int64_t{1} << 53;
  manifest.attributes = {{"a", "0.1"}, {"text", "line\n\"quoted\" \xc3\xa9"}, {"", ""}};
  manifest.files = {{"rank-00000.h5", 123, digest("x", 1)}};
  checkpoint::Piece piece;
  piece.tensor = "model/wte";
  piece.dtype = DType::bf16;
  piece.shape = {3, 4};
  piece.slice = {{{1, 0}, {2, 4}}, 3, 4};
  piece.dataset = "tensor/model/wte/0";
  piece.offset_bytes = 64;
  piece.digest = digest("y", 1);
  manifest.pieces = {piece, piece};
  piece.shape = {};
  piece.slice = {{}, 0, 1};
  manifest.blobs = {piece};
  return manifest;
}

/// Returns a body under a matching head.
std::string sealed(const std::string& body) {
  return "{\"digest\": \"" + digest(body.data(), body.size()) + "\", \"manifest\":\n" + body;
}

TEST(ManifestJson, SurvivesSerialisation) {
  const Manifest manifest = small_manifest();
  const std::string text = manifest_to_json(manifest);
  const Manifest back = manifest_from_json(text, "m");
  EXPECT_EQ(back.step, manifest.step);
  EXPECT_EQ(back.attributes, manifest.attributes);
  EXPECT_EQ(back.files[0].name, "rank-00000.h5");
  EXPECT_EQ(back.files[0].size_bytes, 123);
  EXPECT_EQ(to_text(back.pieces), to_text(manifest.pieces));
  EXPECT_EQ(to_text(back.blobs), to_text(manifest.blobs));
  EXPECT_EQ(back.digest.size(), 32u);
  EXPECT_EQ(manifest_to_json(back), text);
  EXPECT_EQ(manifest_from_json(manifest_to_json({}), "m").step, 0);
}

TEST(ManifestJson, OtherTextIsRefused) {
  const auto expect_refused = [](const std::string& text) {
    EXPECT_THAT([&] { manifest_from_json(text, "the/path"); },
                ThrowsMessage<CheckpointError>(
                    testing::AllOf(HasSubstr("the/path"), testing::Not(HasSubstr("json.exception")))))
        << text.substr(0, 200);
  };
  const std::string good = manifest_to_json(small_manifest());
  const std::string body = good.substr(good.find('\n') + 1);
  ASSERT_EQ(sealed(body), good);
  expect_refused("");
  expect_refused("{}");
  expect_refused(good.substr(1));
  expect_refused(body);
  for (const char* text : {"", "{", "{}}\n", "[]}\n", "1}\n", "\"x\"}\n", "null}\n", "{\"format\": 1}}\n"}) {
    expect_refused(sealed(text));
  }
  const auto replaced = [&](const std::string& from, const std::string& to) {
    std::string text = body;
    text.replace(text.find(from), from.size(), to);
    return sealed(text);
  };
  expect_refused(replaced("\"format_version\": 1", "\"format_version\": 0"));
  expect_refused(replaced("\"format_version\": 1", "\"format_version\": 1.5"));
  expect_refused(replaced("\"count\":4", "\"count\":18446744073709551615"));
  expect_refused(replaced("\"count\":4", "\"count\":\"4\""));
  expect_refused(replaced("\"count\":4,", ""));
  expect_refused(replaced("\"bf16\"", "\"fp12\""));
  expect_refused(replaced("\"shape\":[3,4]", "\"shape\":[1,1,1,1,1,1]"));
  expect_refused(replaced("\"files\": [", "\"files\": [7,"));
  expect_refused(replaced("\"a\": \"0.1\"", "\"a\": 0.1"));
  expect_refused(replaced("\"step\": 9007199254740992", "\"step\": " + std::string(100000, '[')));
}

TEST(ManifestJson, OnlyTheVersionOfALaterFormatIsRead) {
  const Manifest manifest =
      manifest_from_json(sealed("{\"format\": \"trireme checkpoint\", \"format_version\": 7, \"new\": 1}}\n"), "m");
  EXPECT_EQ(manifest.format_version, 7);
}

TEST(ManifestJson, AttributesThatAreNotUtf8AreRefused) {
  Manifest manifest = small_manifest();
  manifest.attributes.put("bad", "\xff");
  EXPECT_THROW(manifest_to_json(manifest), CheckpointError);
}

}  // namespace
}  // namespace trireme::io
