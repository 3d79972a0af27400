#include "runtime/host/error.h"

namespace megjit::runtime {

std::string Message::text() const {
    std::string text = what;
    if (!why.empty()) text += "\n  why: " + why;
    if (!fix.empty()) text += "\n  fix: " + fix;
    if (!at.empty()) text += "\n  at:  " + at;
    return text;
}

}  // namespace megjit::runtime
