//! What scripts do, and which do it.

macro_rules! behaviours {
    ($($(#[$doc:meta])* $variant:ident = $name:literal,)*) => {
        /// What a script does.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(in crate::lockd) enum Behaviour {
            $($(#[$doc])* $variant,)*
        }

        impl Behaviour {
            /// Its name in options.
            pub(in crate::lockd) fn name(self) -> &'static str {
                match self {
                    $(Behaviour::$variant => $name,)*
                }
            }

            /// All names.
            pub(super) fn names() -> Vec<&'static str> {
                vec![$($name),*]
            }

            /// The one with this name.
            pub(super) fn of_name(name: &str) -> Option<Self> {
                match name {
                    $($name => Some(Behaviour::$variant),)*
                    _ => None,
                }
            }
        }
    };
}

behaviours! {
    /// KEYS: name; ARGV: owner. 1 if it was released, else 0.
    Release = "release",
    /// The same; -1 if it is free.
    ReleaseOrFree = "release-or-free",
    /// The same; -1 if it is free, -2 if another owner has it.
    ReleaseOrWhy = "release-or-why",
    /// The same; 1 or nothing.
    ReleaseOrNothing = "release-or-nothing",
    /// ARGV: owner, channel. The same, and the name is published.
    ReleaseAndPublish = "release-and-publish",
    /// The same; OK if it is free, an error if another owner has it.
    ReleaseOrError = "release-or-error",
    /// KEYS: name; ARGV: channel. 1 or nothing, and the name is published; whoever owns it, but
    /// only for those who took it.
    ReleaseByTaker = "release-by-taker",
    /// KEYS: name; ARGV: owner, milliseconds. 1 if it was extended, else 0.
    Extend = "extend",
    /// The same; 1 or nothing.
    ExtendOrNothing = "extend-or-nothing",
    /// The same; -1 if another owner has it.
    ExtendOrWhy = "extend-or-why",
    /// The same in seconds; 0 of them: without an end, which is refused.
    ExtendSeconds = "extend-seconds",
    /// ARGV: owner, milliseconds, "0" or nothing to add them to what is left.
    ExtendOrAdd = "extend-or-add",
    /// KEYS: name; ARGV: owner. Milliseconds that are left, 0 if it is not this owner's.
    Left = "left",
    /// The same; -3 if it is not this owner's.
    LeftOrThree = "left-or-minus-three",
    /// The same in seconds; an error if it is not this owner's.
    LeftSeconds = "left-seconds",
    /// KEYS: name. The owner, and milliseconds that are left.
    OwnerAndLeft = "owner-and-left",
    /// KEYS: names; ARGV: owner, milliseconds. Takes all, or none: how many.
    TakeAll = "take-all",
    /// The same: extends all, or none.
    ExtendAll = "extend-all",
    /// KEYS: names; ARGV: owner. Releases its own: how many.
    ReleaseAll = "release-all",
    /// KEYS: name; ARGV: owner, milliseconds. Takes it, or extends it: 1 or nothing.
    TakeOrExtend = "take-or-extend",
    /// The same: OK, or an error.
    TakeOrExtendOrError = "take-or-extend-or-error",
    /// ARGV: owner, milliseconds, "yes" to take it: OK or nothing.
    TakeIfYes = "take-if-yes",
    /// ARGV: owner, how much of it counts, milliseconds. Takes it, also from an owner that begins
    /// alike: OK or nothing.
    TakeOver = "take-over",
    /// KEYS: name; ARGV: owner, milliseconds: 1 or 0.
    TakeOrZero = "take-or-zero",
    /// KEYS: name; ARGV: owner, seconds. OK or nothing.
    TakeSeconds = "take-seconds",
    /// Redisson: KEYS: name; ARGV: milliseconds, owner. Nothing, or what the holder has left.
    RedissonLock = "redisson-lock",
    /// The same; an error, ARGV 3, if it is this owner's.
    RedissonOnce = "redisson-once",
    /// The same with a token: -1 and the token, or what the holder has left and -1.
    RedissonFenced = "redisson-fenced",
    /// KEYS: name, channel, latch or nothing; ARGV: message, milliseconds, owner, command,
    /// milliseconds of the latch.
    RedissonUnlock = "redisson-unlock",
    /// KEYS: names; ARGV: milliseconds, owners.
    RedissonRenew = "redisson-renew",
    /// KEYS: name; ARGV: milliseconds, owner. 1 if it was extended, else 0.
    RedissonRenewOne = "redisson-renew-one",
    /// KEYS: name; ARGV: milliseconds. 1 if it was extended, else 0; whoever owns it, but only for
    /// those who took it.
    RedissonExpire = "redisson-expire",
    /// Looks whether this is a cluster: nothing.
    RedissonProbe = "redisson-probe",
    /// KEYS: name, channel; ARGV: message, command.
    RedissonForce = "redisson-force-unlock",
}

/// By the SHA1 of the normal form.
pub(super) const BY_NORMAL_FORM: &[(&str, Behaviour)] = &[
    // bsm-redislock-refresh, pottery-extend, redsync-touch, shedlock-update
    ("76dd726887f26ccce2283e87c8bc8e39b9e3ab4d", Behaviour::Extend),
    // redis-py-reacquire
    ("17dacdcb17e36e063d99e789f06127cb37281798", Behaviour::Extend),
    // redsync-touch-setnx
    ("5d26d07128dcd8114c692a3ddf68b14ec8df17ba", Behaviour::Extend),
    // rslock-extend
    ("b6dd6a583057768e20b9bd766fd057f56b62d812", Behaviour::Extend),
    // npm-redlock-4.0.0-extendscript
    ("029fc92c7386f268f7af28f1d9dac6b9f3d837ee", Behaviour::ExtendAll),
    // npm-redlock4-extend, npm-redlock5-extend
    ("116fdbe8b95718d879859368d2d43cd052c9ac18", Behaviour::ExtendAll),
    // redis-py-2.10.6-extend
    ("0ef8b6d050015c2a7db9f356b70cc1afa042996e", Behaviour::ExtendOrAdd),
    // redis-py-extend
    ("6c46816c4a0fd8583cd623cbef16de027651ea4c", Behaviour::ExtendOrAdd),
    // spring-integration-base-renew
    ("e29f43fb4f35e5c495730d340014314ce0629a5f", Behaviour::ExtendOrNothing),
    // redlock-net-crlf-extend, redlock-net-extend
    ("f896e159aebef75fc62405fdca96f42b4be2ffca", Behaviour::ExtendOrWhy),
    // laravel-refreshlock
    ("eb608dae5ab6ba11577f9f6665514349472f9fc5", Behaviour::ExtendSeconds),
    // pottery-acquired
    ("2fde0fb67bc4d2b0f06fa578ab63100cb3b6ae8e", Behaviour::Left),
    // bsm-redislock-pttl
    ("6f3666a6543cece0f7901054fcdda725850a879f", Behaviour::LeftOrThree),
    // aioredlock-ttl
    ("66b950bced7b746aa5b7c77b2dc5b11d604b845a", Behaviour::LeftSeconds),
    // redlock-rb-pttl
    ("8241bcadb9353e0c75a10bc6fa97b8c276790713", Behaviour::OwnerAndLeft),
    // redisson-multilock-expire
    ("482063f8bca181a5cae9e299272976a88bc5dbf1", Behaviour::RedissonExpire),
    // redisson-fenced-trylockandgettoken
    ("d58ee2c7356958d9d2ff75fe3f81204285127935", Behaviour::RedissonFenced),
    // redisson-3.16.8-forceunlock
    ("665d47b872f97208ef772d047c80b6b49f55d937", Behaviour::RedissonForce),
    // redisson-forceunlock
    ("9c89306b7d4b29154b31408fee34b7b40960d9f0", Behaviour::RedissonForce),
    // redisson-3.16.8-lock
    ("d0edb2998631a4ecaba4e1d141dc4de4704f125a", Behaviour::RedissonLock),
    // redisson-fenced-lock
    ("667b088415bd705db22e8b8786f340638c2e1404", Behaviour::RedissonLock),
    // redisson-lock
    ("73aca91a9804baeecbc18c106b44398a9aa742f5", Behaviour::RedissonLock),
    // redisson-nonreentrant-lock
    ("25a20fd2d0743741b7d5ca0f5c2c470297c084fe", Behaviour::RedissonOnce),
    // redisson-probe-detectcluster
    ("49e81634203504e158cbc151f60590de9fcee3af", Behaviour::RedissonProbe),
    // redisson-renew
    ("ab210058c0dba96de7e0a65c003030e2b777e6e9", Behaviour::RedissonRenew),
    // redisson-3.16.8-renew
    ("f4efc54a51e8109c668f34b79e78c6ef2dc46b7a", Behaviour::RedissonRenewOne),
    // redisson-3.16.8-unlock
    ("1b1a6643b9b94438a02c5b393ae4b3c9f219c62a", Behaviour::RedissonUnlock),
    // redisson-3.23.5-unlock
    ("1e4314be80c537c7bffa57b92fa9778ae6ea76d9", Behaviour::RedissonUnlock),
    // redisson-unlock
    ("d12316f48e2c5d29729ea07dfd5abff6e36367b3", Behaviour::RedissonUnlock),
    // bsm-redislock-release, laravel-releaselock, pottery-release, redlock-net-crlf-unlock,
    // redlock-net-unlock, redlock-py-unlock, redlock-rb-unlock, redsync-4.8.1-deletescript,
    // rslock-unlock, shedlock-delete
    ("6b9c145655e77a8ed46ac2cbfddae4f3a0525b85", Behaviour::Release),
    // redis-py-release
    ("69943e798fbff551a9eb7fd44bd115fb2dca2775", Behaviour::Release),
    // npm-redlock-4.0.0-unlockscript, npm-redlock4-unlock, npm-redlock5-release
    ("1f020aba4193339587ca7642307c2d196aac88fe", Behaviour::ReleaseAll),
    // spring-integration-6.5.0-pubsub-delete-unlock
    ("0b7a578618215553981e38ea851ddefa51f9d005", Behaviour::ReleaseAndPublish),
    // spring-integration-pubsub-unlink-unlock
    ("acf4a8e886ec9b7a792c212b171cc6b2e12f89d6", Behaviour::ReleaseAndPublish),
    // spring-integration-5.5.20-pubsub-delete-unlock
    ("8690818ba7aa78ee144ca7795b8cb80b12054aa6", Behaviour::ReleaseByTaker),
    // spring-integration-5.5.20-pubsub-unlink-unlock
    ("b988075a75d04999d7f77f23f9bbf381a682c65e", Behaviour::ReleaseByTaker),
    // aioredlock-unlock
    ("cd30fb04fb814e8e8a7cd44ce8b846fa99515491", Behaviour::ReleaseOrError),
    // redsync-delete
    ("8aa08a96e044e0ee90700b806750a2bb9031726f", Behaviour::ReleaseOrFree),
    // spring-integration-6.5.0-spin-delete-unlock
    ("8efb658add3c2849f5023955632706c601eb1ce6", Behaviour::ReleaseOrNothing),
    // spring-integration-spin-unlink-unlock
    ("444c6dcbbe0002823da588a8f31753b64a23d531", Behaviour::ReleaseOrNothing),
    // dapr-unlock
    ("1a3228d9667f5c2e8ecf3e6df8220781c4cb699f", Behaviour::ReleaseOrWhy),
    // npm-redlock-4.0.0-lockscript
    ("18d5bf3fe41626629dbbbc3f8e0cc739ea0ba301", Behaviour::TakeAll),
    // npm-redlock4-lock, npm-redlock5-acquire
    ("40dd95cc0614bba527df5b35433ace340621992d", Behaviour::TakeAll),
    // redlock-rb-lock
    ("05304a492b02934ee23d60a79881b85a3700ab55", Behaviour::TakeIfYes),
    // spring-integration-5.5.20-base-obtain-lock, spring-integration-base-obtain-lock
    ("ab4ab53958a06adcc9191b3671fe5102da958f1c", Behaviour::TakeOrExtend),
    // aioredlock-lock
    ("841916c9987736554579645fca6d225ffd719b6b", Behaviour::TakeOrExtendOrError),
    // redis-py-2.10.6-acquire
    ("df28a5390a2e58052bd8f3179d328440b86ddcda", Behaviour::TakeOrZero),
    // bsm-redislock-obtain
    ("67deff926eb6ddedda8fe54805d27e8561807d9b", Behaviour::TakeOver),
    // laravel-add
    ("01b05c6bf89c7d7be88a5abac8291672d3648b37", Behaviour::TakeSeconds),
];

/// By the SHA1 of the text, of versions that are in use: they need not be sent.
pub(super) const BY_TEXT: &[(&str, Behaviour)] = &[
    // bsm-redislock-refresh
    ("a7aba3bc5d6e99b3003da8b9d80a63b9f4092ecf", Behaviour::Extend),
    // pottery-extend
    ("ba015a80261b616e7a62d35df0b8e3edbe6c9414", Behaviour::Extend),
    // redis-py-reacquire
    ("1cac51482acf5858da00f6d685d68f886cd6b6b2", Behaviour::Extend),
    // redsync-touch
    ("d75bb8b5bd13532ddedd17762e772346e39b321e", Behaviour::Extend),
    // redsync-touch-setnx
    ("b6b55c439e02c6f52ffb8be7ec8c0d0ac816ea79", Behaviour::Extend),
    // rslock-extend
    ("17a49af0c4b1a9034503fa84f3570f5ca76c4cbf", Behaviour::Extend),
    // shedlock-update
    ("67256370c2d1c87e2250898075542b1a7fa5b917", Behaviour::Extend),
    // npm-redlock-4.0.0-extendscript
    ("acaf90b4697bb48bb5f603e9e613a54df7536c70", Behaviour::ExtendAll),
    // npm-redlock4-extend
    ("ce46f80993d5dac20dd066eb301a4e37994bdbed", Behaviour::ExtendAll),
    // npm-redlock5-extend
    ("aed6f382e410db8ba7926d4e5e9aab410bf2a78a", Behaviour::ExtendAll),
    // redis-py-2.10.6-extend
    ("4a484ac024e9b025224cd9f8e1d59dbf3c15d00d", Behaviour::ExtendOrAdd),
    // redis-py-extend
    ("a4e8783852e6b949f9ef3a97212805108459a890", Behaviour::ExtendOrAdd),
    // spring-integration-base-renew
    ("879e0f7b8d83c3266d4e996627438c05dbda0b89", Behaviour::ExtendOrNothing),
    // redlock-net-crlf-extend
    ("3e7c6bf3e080bb97a92e77362149c26252b98212", Behaviour::ExtendOrWhy),
    // redlock-net-extend
    ("9f614a785a5f9ae8c6396c6b4bf94d2087342603", Behaviour::ExtendOrWhy),
    // laravel-refreshlock
    ("d5f94f1848f0c54fff99d99dbc4d54184a157c02", Behaviour::ExtendSeconds),
    // pottery-acquired
    ("f5f7bd3a3aa4a63c507c1155c5ea1219b350d992", Behaviour::Left),
    // bsm-redislock-pttl
    ("6484da7d58920897fdc22b7f9afd1a3d47524ea8", Behaviour::LeftOrThree),
    // aioredlock-ttl
    ("f908d3f43dbcabc68fc0c9ecaf1fa4a285ecdb0a", Behaviour::LeftSeconds),
    // redlock-rb-pttl
    ("78d2ca48a6dc9ef6892059792a3a0c5237733d64", Behaviour::OwnerAndLeft),
    // redisson-multilock-expire
    ("3fd750e0b43af99dbd223e5523718f18cded3664", Behaviour::RedissonExpire),
    // redisson-fenced-trylockandgettoken
    ("49babb5a1e6a0c5f188c2ae62b93b51cdfd63e45", Behaviour::RedissonFenced),
    // redisson-3.16.8-forceunlock
    ("7e9c80b3d786b95d5d4aaf8fd73adb9775fa6fb1", Behaviour::RedissonForce),
    // redisson-forceunlock
    ("605e338249a7a1d40df83b04f7658354f883b41b", Behaviour::RedissonForce),
    // redisson-3.16.8-lock
    ("dad0f8d619e548e04f21fb48d50be5034df3adae", Behaviour::RedissonLock),
    // redisson-fenced-lock
    ("46b5551ba403d6152a7a6eca122e08728d6c8c66", Behaviour::RedissonLock),
    // redisson-lock
    ("149c5a8bf18676fd99e9e6e24923bd64d9b62f94", Behaviour::RedissonLock),
    // redisson-nonreentrant-lock
    ("3daa7be6cf69d9309ad990442e83bf25094f9b22", Behaviour::RedissonOnce),
    // redisson-probe-detectcluster
    ("444506ed6079843ae4590ff6caf5f677dae3a35f", Behaviour::RedissonProbe),
    // redisson-renew
    ("6a3d31570dc6f4b0bd32bcdc8e75667747c6f635", Behaviour::RedissonRenew),
    // redisson-3.16.8-renew
    ("8e19a1ddbdee9138df9f32a480c57addab4353d1", Behaviour::RedissonRenewOne),
    // redisson-3.16.8-unlock
    ("3ffe249c16dee540ac8ab32e39bd408626b9aff7", Behaviour::RedissonUnlock),
    // redisson-3.23.5-unlock
    ("778cea8aada230ae060b432fc333adaec85f2f4c", Behaviour::RedissonUnlock),
    // redisson-unlock
    ("6866459238a13a701d42f4971f12d9f3a50e2442", Behaviour::RedissonUnlock),
    // bsm-redislock-release
    ("cf0e94b2e9ffc7e04395cf88f7583fc309985910", Behaviour::Release),
    // laravel-releaselock
    ("647c65a442733a1aa440f99908d249d13b4d6c4a", Behaviour::Release),
    // pottery-release
    ("a4aada0b36710970eedaaaeec4a6b7d8c78c4f80", Behaviour::Release),
    // redis-py-release
    ("c3f8721cbb97f72bc19e972846bd7aaf91901658", Behaviour::Release),
    // redlock-net-crlf-unlock
    ("cb0427378f700ddb2f0e9394dbb0a40bd6dba04a", Behaviour::Release),
    // redlock-net-unlock
    ("18b2a577dbe847b16bebde190d69a1613d68e60e", Behaviour::Release),
    // redlock-py-unlock
    ("4e92fdc63815b3a0a2dd1c1df3694de73607c88d", Behaviour::Release),
    // redlock-rb-unlock
    ("8e4905cee18e7c3188d10f2b8b170e403baed34f", Behaviour::Release),
    // redsync-4.8.1-deletescript
    ("00583931c4e4d483f6233879c133c71ed5393f9d", Behaviour::Release),
    // rslock-unlock
    ("daf86bbf8740dd3ca86733367a016364b2110627", Behaviour::Release),
    // shedlock-delete
    ("194f3902b2dd08557818d09fc2e7682d91480e53", Behaviour::Release),
    // npm-redlock-4.0.0-unlockscript
    ("517e7ed95f00c0c4a209c6a7afcc6ab797d30b85", Behaviour::ReleaseAll),
    // npm-redlock4-unlock
    ("0f0f23b9048b36752b5be114f357ba083449f908", Behaviour::ReleaseAll),
    // npm-redlock5-release
    ("e4612211c9f8f51c257e26e056b0a654b3187242", Behaviour::ReleaseAll),
    // spring-integration-6.5.0-pubsub-delete-unlock
    ("b2dedc0ab01c17f9f20e3e6ddb62dcb6afbed0bd", Behaviour::ReleaseAndPublish),
    // spring-integration-pubsub-unlink-unlock
    ("7a71e9443a2a41539fb115a5a27d5a748a871aed", Behaviour::ReleaseAndPublish),
    // spring-integration-5.5.20-pubsub-delete-unlock
    ("20b5c3728736e2367b496c16390f9df56916a76f", Behaviour::ReleaseByTaker),
    // spring-integration-5.5.20-pubsub-unlink-unlock
    ("c1ae6c899d164de076f40ffe82eba8fb8e27af6c", Behaviour::ReleaseByTaker),
    // aioredlock-unlock
    ("241e4ca540a1cc4ec1f32d9eb9f879e607d7e6e5", Behaviour::ReleaseOrError),
    // redsync-delete
    ("e950836ed1e694540c503ef9972b8de518044d3b", Behaviour::ReleaseOrFree),
    // spring-integration-6.5.0-spin-delete-unlock
    ("356d97191f2b63031781ccc0e8e82f02e1995a90", Behaviour::ReleaseOrNothing),
    // spring-integration-spin-unlink-unlock
    ("f0f9038aa2b6d6c3436c72d147573ea2a58f0ef2", Behaviour::ReleaseOrNothing),
    // dapr-unlock
    ("08741c111900b6318ee3f60cb3c2fa1f6c74d859", Behaviour::ReleaseOrWhy),
    // npm-redlock-4.0.0-lockscript
    ("d01fb69e6ecc8bad3ca9bacba9f4f9e96862313f", Behaviour::TakeAll),
    // npm-redlock4-lock
    ("e5a322e2634ef59a516e8ea150cb085afafee684", Behaviour::TakeAll),
    // npm-redlock5-acquire
    ("96da70f7716f27d278a5218544df37fd8b0a5e4c", Behaviour::TakeAll),
    // redlock-rb-lock
    ("ceb2b2062e40c51a2b3963fd078bc71f11bdc65c", Behaviour::TakeIfYes),
    // spring-integration-5.5.20-base-obtain-lock
    ("6d2bc6d16248df19e144841297222544e3c7800a", Behaviour::TakeOrExtend),
    // spring-integration-base-obtain-lock
    ("175897a4e379e99e79a54937be09226f76cdcfe5", Behaviour::TakeOrExtend),
    // aioredlock-lock
    ("c75a9bf1538efcdb1f383acc3e273c5089d57e58", Behaviour::TakeOrExtendOrError),
    // redis-py-2.10.6-acquire
    ("5688a2541c9edd77746bcd2385e65ff3639a664f", Behaviour::TakeOrZero),
    // bsm-redislock-obtain
    ("80a1b5f2cfccec3b7119ba7721d2127682b691a7", Behaviour::TakeOver),
    // laravel-add
    ("a08c9c69b7c07ae2485190873b90d128a23e502d", Behaviour::TakeSeconds),
];
