// python/bindings/loan.h -- Loan: while a program runs that rebinds handles, they are empty. So
// nobody reads half of an update, and the program may overwrite what nobody else holds. A thread
// that wants the value of an empty handle waits (Handle::value).
#pragma once

#include "python/bindings/handle.h"

namespace megjit::python {

class Loan {
public:
    // Takes the values out of the handles, which must outlive it; waits for those that another loan
    // has. Made and ended with Python's lock, which is let go of in between.
    explicit Loan(std::vector<Handle*> handles);
    ~Loan();  // gives `values` back to the handles, but for null ones
    Loan(const Loan&) = delete;

    // How many loans have ended: while the number stays, waiting for values has changed none.
    static int ended();

    Tensors values;  // by handle

private:
    std::vector<Handle*> handles_;
};

}  // namespace megjit::python
