#pragma once

#include <string_view>

namespace trireme::report {

/// Style sheet of the page. The colours of curves are those of Okabe and Ito (jfly.uni-koeln.de/color), distinguishable
/// for colour-blind readers, lighter on a dark background.
extern const std::string_view style_sheet;

}  // namespace trireme::report
