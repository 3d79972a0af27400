// runtime/eager/at_place.h -- AtPlace: on which device constants lie that meet no other operand.
#pragma once

namespace megjit::runtime {

class Device;

// While one lives, ops of this thread whose operands are all constants compute on that device if
// their caller names none: constants lie nowhere until they are used. Backward of an op runs at the
// op's place.
class AtPlace {
public:
    explicit AtPlace(Device& place);
    ~AtPlace();
    AtPlace(const AtPlace&) = delete;

private:
    Device* saved_;
};

}  // namespace megjit::runtime
