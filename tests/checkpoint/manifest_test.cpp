#include "src/checkpoint/manifest.hpp"

#include <gmock/gmock.h>

#include "src/base/hash.hpp"

namespace trireme::checkpoint {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

Manifest small_manifest() {
  Manifest manifest;
  manifest.step = 3;
  manifest.files = {{"a.h5", 100, digest("a", 1)}, {"b.h5", 100, digest("b", 1)}};
  for (std::size_t i = 0; i < 2; ++i) {
    Piece piece;
    piece.tensor = "model/wte";
    piece.shape = {4, 4};
    piece.slice = {{{static_cast<std::int64_t>(2 * i), 0}, {2, 4}}, 0, 8};
    piece.file = i;
    piece.dataset = "tensor/model/wte/0";
    piece.offset_bytes = 64;
    piece.digest = digest("x", 1);
    manifest.pieces.push_back(piece);
  }
  return manifest;
}

void expect_refused(const std::function<void(Manifest&)>& damage, const std::string& message) {
  Manifest manifest = small_manifest();
  damage(manifest);
  EXPECT_THAT([&] { validate(manifest); }, ThrowsMessage<CheckpointError>(HasSubstr(message)));
}

TEST(Manifest, IsTheSameFromItsText) {
  Manifest manifest = small_manifest();
  manifest.blobs = {manifest.pieces[0]};
  manifest.attributes = {{"options", "a = 1\nb = 2 3\n"}, {"empty", ""}, {"last", " x"}};
  const Manifest read = manifest_from_text(to_text(manifest));
  EXPECT_EQ(to_text(read), to_text(manifest));
  EXPECT_EQ(read.step, 3);
  EXPECT_EQ(read.attributes, manifest.attributes);
  EXPECT_EQ(read.files[1].digest, manifest.files[1].digest);
  EXPECT_EQ(read.pieces[1].slice.box.offset, manifest.pieces[1].slice.box.offset);
  EXPECT_EQ(read.blobs.size(), 1u);
}

TEST(Manifest, FileNamesThatLeadOutOfTheFolderAreRefused) {
  for (const std::string& name :
       {std::string(".."), std::string("."), std::string("../a"), std::string("/etc/passwd"), std::string("a/b"),
        std::string("a\nb"), std::string("a\0b", 3), std::string(), std::string(256, 'a'), std::string("a\x7f")}) {
    expect_refused([&](Manifest& manifest) { manifest.files[0].name = name; }, "refused");
  }
}

TEST(Manifest, ContradictionsAreRefused) {
  expect_refused([](Manifest& m) { m.files[1].name = "a.h5"; }, "twice");
  expect_refused([](Manifest& m) { m.files[1].size_bytes = -1; }, "proper size");
  expect_refused([](Manifest& m) { m.files[1].digest = "0123"; }, "digest");
  expect_refused([](Manifest& m) { m.pieces[0].file = 2; }, "proper file");
  expect_refused([](Manifest& m) { m.pieces[0].offset_bytes = 69; }, "beyond the end");
  expect_refused([](Manifest& m) { m.pieces[0].offset_bytes = -4; }, "beyond the end");
  expect_refused([](Manifest& m) { m.pieces[0].tensor = "a b"; }, "names are");
  expect_refused([](Manifest& m) { m.pieces[0].dtype = DType::bf16; }, "in another");
  expect_refused([](Manifest& m) { m.pieces[1].shape = {5, 4}; }, "in another");
  expect_refused([](Manifest& m) { m.pieces.pop_back(); }, "8 of its 16 elements are missing");
  expect_refused([](Manifest& m) { m.pieces[1].slice = m.pieces[0].slice; }, "there twice");
  expect_refused([](Manifest& m) { m.pieces[1].slice.box.offset[0] = 3; }, "not inside the tensor");
  expect_refused([](Manifest& m) { m.step = -1; }, "step -1");
  expect_refused([](Manifest& m) { m.blobs.push_back(m.pieces[0]); }, "exactly once");
}

}  // namespace
}  // namespace trireme::checkpoint
