"""Collective operations under their second name; see ``megengine.distributed.functional``."""

from ..distributed.functional import all_gather as all_gather
from ..distributed.functional import all_reduce_max as all_reduce_max
from ..distributed.functional import all_reduce_min as all_reduce_min
from ..distributed.functional import all_reduce_sum as all_reduce_sum
from ..distributed.functional import all_to_all as all_to_all
from ..distributed.functional import broadcast as broadcast
from ..distributed.functional import collective_comm as collective_comm
from ..distributed.functional import gather as gather
from ..distributed.functional import reduce_scatter_sum as reduce_scatter_sum
from ..distributed.functional import reduce_sum as reduce_sum
from ..distributed.functional import remote_recv as remote_recv
from ..distributed.functional import remote_send as remote_send
from ..distributed.functional import scatter as scatter
