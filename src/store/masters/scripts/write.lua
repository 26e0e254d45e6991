-- ARGV: as above, then cells.
apply(4)
return {'ok', micros}
