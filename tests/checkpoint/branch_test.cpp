#include "src/checkpoint/branch.hpp"

#include <gmock/gmock.h>

namespace trireme::checkpoint {
namespace {

TEST(Branch, PassesWhatItContinuesFrom) {
  const Branch run("a:0 b:100 c:150");
  EXPECT_TRUE(run.passes(run, 1000));
  EXPECT_TRUE(run.passes(Branch("a:0"), 100));
  EXPECT_TRUE(run.passes(Branch("a:0 b:100"), 150));
  EXPECT_FALSE(run.passes(Branch("a:0"), 101)) << "left by b";
  EXPECT_FALSE(run.passes(Branch("a:0 b:100"), 151)) << "left by c";
  EXPECT_FALSE(run.passes(Branch("a:0 d:100"), 120)) << "of another attempt";
  EXPECT_FALSE(run.passes(Branch("a:0 c:150"), 160));
  EXPECT_FALSE(run.passes(Branch("e:0"), 0)) << "of another run";
  EXPECT_FALSE(run.passes(Branch(), 0));
  EXPECT_FALSE(Branch("a:0").passes(run, 150));
}

TEST(Branch, IsKeptInTheAttributesOfACheckpoint) {
  Lineage lineage{Branch("a:0"), 70};
  lineage.branch.add("0a1b", 80);
  Attributes attributes;
  EXPECT_FALSE(lineage_of(attributes));
  put_lineage(attributes, lineage);
  EXPECT_EQ(lineage_of(attributes)->branch.text(), "a:0 0a1b:80");
  EXPECT_EQ(lineage_of(attributes)->base, 70);
  for (const char* text : {"a", "a:", ":1", "a:-1", "a:1 b", "a:x"})
    EXPECT_THROW(Branch{text}, CheckpointError) << text;
}

}  // namespace
}  // namespace trireme::checkpoint
