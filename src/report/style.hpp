#pragma once

#include <string_view>

namespace trireme::report {

/// Style sheet of the page. The colours of curves are those of Okabe and Ito (jfly.uni-koeln.de/color), which
/// colour-blind readers tell apart, lighter on a dark ground.
extern const std::string_view style_sheet;

}  // namespace trireme::report
